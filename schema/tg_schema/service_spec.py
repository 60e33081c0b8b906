"""Service name -> its request and response records, as data."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tg_schema.agent import AgentRequest, AgentResponse
from tg_schema.prompt import PromptRequest, PromptResponse
from tg_schema.response import Response
from tg_schema.text_completion import TextCompletionRequest, TextCompletionResponse
from tg_schema.tool import ToolRequest, ToolResponse

Req = TypeVar("Req")
Resp = TypeVar("Resp", bound=Response)


@dataclass(frozen=True, slots=True)
class ServiceSpec(Generic[Req, Resp]):
    """One kind of service: its name in topics and URLs, and its two record types."""

    name: str
    request: type[Req]
    response: type[Resp]


TEXT_COMPLETION = ServiceSpec("text-completion", TextCompletionRequest, TextCompletionResponse)
PROMPT = ServiceSpec("prompt", PromptRequest, PromptResponse)
AGENT = ServiceSpec("agent", AgentRequest, AgentResponse)
TOOL = ServiceSpec("tool", ToolRequest, ToolResponse)
"""The records of a custom service that agents call as a tool; it has its own name in topics."""
