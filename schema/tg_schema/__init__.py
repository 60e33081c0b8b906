"""What travels: one file per service, the errors, the topic names and the JSON codec."""

from tg_schema.agent import AgentRequest, AgentResponse, AgentStep
from tg_schema.codec import decode, encode
from tg_schema.errors import Error, TgError
from tg_schema.prompt import PromptRequest, PromptResponse
from tg_schema.service_spec import AGENT, PROMPT, TEXT_COMPLETION, ServiceSpec
from tg_schema.text_completion import Sampling, TextCompletionRequest, TextCompletionResponse, Token

__all__ = [
    "AGENT",
    "PROMPT",
    "TEXT_COMPLETION",
    "AgentRequest",
    "AgentResponse",
    "AgentStep",
    "Error",
    "PromptRequest",
    "PromptResponse",
    "Sampling",
    "ServiceSpec",
    "TextCompletionRequest",
    "TextCompletionResponse",
    "TgError",
    "Token",
    "decode",
    "encode",
]
