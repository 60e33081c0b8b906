"""Service name -> its request and response records, as data."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tg_schema.agent import AgentRequest, AgentResponse
from tg_schema.features import Feature
from tg_schema.prompt import PromptRequest, PromptResponse
from tg_schema.response import Response
from tg_schema.text_completion import TextCompletionRequest, TextCompletionResponse
from tg_schema.tool import ToolRequest, ToolResponse
from tg_schema.usage_report import UsageRequest, UsageResponse

Req = TypeVar("Req")
Resp = TypeVar("Resp", bound=Response)


def _needs_none(_: object) -> frozenset[Feature]:
    return frozenset()


def _take_last(records: Sequence[Any]) -> Any:
    return records[-1]


class ServiceSpec(msgspec.Struct, Generic[Req, Resp], frozen=True):
    """One kind of service: its name in topics and URLs, and its two record types.

    `features` says which optional features a request needs. A requestor refuses requests for features that no processor
    announces. `summarize` turns a whole answer into one record, if `Response.join` leaves several.
    """

    name: str
    request: type[Req]
    response: type[Resp]
    features: Callable[[Any], frozenset[Feature]] = _needs_none
    summarize: Callable[[Sequence[Any]], Any] = _take_last


TEXT_COMPLETION = ServiceSpec(
    "text-completion",
    TextCompletionRequest,
    TextCompletionResponse,
    TextCompletionRequest.find_features,
    TextCompletionResponse.summarize,
)
PROMPT = ServiceSpec("prompt", PromptRequest, PromptResponse)
AGENT = ServiceSpec("agent", AgentRequest, AgentResponse)
USAGE = ServiceSpec("usage", UsageRequest, UsageResponse)
TOOL = ServiceSpec("tool", ToolRequest, ToolResponse)
"""The records of a custom service that agents call as a tool; it has its own name in topics."""
