"""What chat doors share: OpenAI's body, answers, usage and errors, on which other doors build."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_gateway.dialects.chat.answer_style import OPENAI_STYLE, OWNER, AnswerStyle
from tg_gateway.dialects.chat.body import ChatBody
from tg_gateway.dialects.chat.failures import (
    ErrorObject, Failure, OpenAiShaped, decode_body, describe_error, refuse, refuse_unsupported,
)
from tg_gateway.dialects.chat.logprobs import HALF_CHARACTER, UNKNOWN_LOGPROB, TokenLogprob, TopLogprob, make_logprobs
from tg_gateway.dialects.chat.messages import make_tool, read_image
from tg_gateway.dialects.chat.request import (
    DIALECT, find_asked_model, list_ignored, read_effort, read_request, simplify,
)
from tg_gateway.dialects.chat.sampling import (
    AnyCount, AtLeastOne, CommonSampling, SamplingBody, VllmSampling, read_form, read_sampling,
)
from tg_gateway.dialects.chat.shapes import (
    ChatCompletion, ChatEnding, ChunkChoice, CompletionUsage, NamedAnswer, WholeCall, WholeChoice, WholeFunction,
    WholeMessage, describe_usage,
)
from tg_gateway.dialects.chat.text_inputs import TextInput, TextInputs, read_inputs
from tg_gateway.dialects.chat.writers import ChatStreamWriter, ChunkWriter, encode_chat, restore_chat, too_many

__all__ = [
    "DIALECT", "HALF_CHARACTER", "OPENAI_STYLE", "OWNER", "UNKNOWN_LOGPROB", "AnswerStyle", "AnyCount", "AtLeastOne",
    "ChatBody", "ChatCompletion", "ChatEnding", "ChatStreamWriter", "ChunkChoice", "ChunkWriter", "CommonSampling",
    "CompletionUsage", "ErrorObject", "Failure", "NamedAnswer", "OpenAiShaped", "SamplingBody", "TextInput",
    "TextInputs", "TokenLogprob", "TopLogprob", "VllmSampling", "WholeCall", "WholeChoice", "WholeFunction",
    "WholeMessage", "decode_body", "describe_error", "describe_usage", "encode_chat", "find_asked_model",
    "list_ignored", "make_logprobs", "make_tool", "read_effort", "read_form", "read_image", "read_inputs",
    "read_request", "read_sampling", "refuse", "refuse_unsupported",
    "restore_chat", "simplify", "too_many",
]  # fmt: skip
