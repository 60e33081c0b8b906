"""The wire: the records of each service, the errors, the topic names and the JSON codec."""

from tg_schema.agent import AgentRequest, AgentResponse, AgentStep
from tg_schema.codec import decode, encode, try_decode
from tg_schema.completion import FinishReason, Token, Usage
from tg_schema.conversation import ImagePart, Message, ModelInfo, TextPart, Tool, ToolCall, ToolCallDelta
from tg_schema.errors import Error, TgError
from tg_schema.features import COMMON_FEATURES
from tg_schema.prompt import PromptRequest, PromptResponse
from tg_schema.sampling import Sampling
from tg_schema.service_spec import AGENT, PROMPT, TEXT_COMPLETION, ServiceSpec
from tg_schema.text_completion import TextCompletionRequest, TextCompletionResponse

__all__ = [
    "AGENT", "COMMON_FEATURES", "PROMPT", "TEXT_COMPLETION", "AgentRequest", "AgentResponse", "AgentStep", "Error",
    "FinishReason", "ImagePart", "Message", "ModelInfo", "PromptRequest", "PromptResponse", "Sampling", "ServiceSpec",
    "TextCompletionRequest", "TextCompletionResponse", "TextPart", "TgError", "Token", "Tool", "ToolCall",
    "ToolCallDelta", "Usage", "decode", "encode", "try_decode",
]  # fmt: skip
