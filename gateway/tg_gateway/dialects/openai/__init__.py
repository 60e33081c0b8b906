"""OpenAI's protocol: models, chats and completions; the inputs, usage and errors that other doors share with it."""

from tg_gateway.dialects.openai.answer_style import AnswerStyle
from tg_gateway.dialects.openai.asked_model import check_peer, find_asked_model
from tg_gateway.dialects.openai.chat_body import ChatBody
from tg_gateway.dialects.openai.chat_messages import read_image
from tg_gateway.dialects.openai.chat_request import DIALECT, read_effort, read_request, simplify
from tg_gateway.dialects.openai.chat_shapes import ChatCompletion, WholeCall, WholeChoice, WholeFunction, WholeMessage
from tg_gateway.dialects.openai.chat_writers import ChatBodyWriter, ChatStreamWriter
from tg_gateway.dialects.openai.dialect import MOUNTS, OpenAi
from tg_gateway.dialects.openai.failures import ErrorObject, decode_body, describe_error, refuse
from tg_gateway.dialects.openai.logprobs import TokenLogprob, make_logprobs
from tg_gateway.dialects.openai.text_inputs import TextInput, TextInputs, read_inputs
from tg_gateway.dialects.openai.usage import CompletionUsage, UsageTotals

__all__ = [
    "DIALECT", "MOUNTS", "AnswerStyle", "ChatBody", "ChatBodyWriter", "ChatCompletion", "ChatStreamWriter",
    "CompletionUsage", "ErrorObject", "OpenAi", "TextInput", "TextInputs", "TokenLogprob",
    "UsageTotals", "WholeCall", "WholeChoice", "WholeFunction", "WholeMessage", "check_peer", "decode_body",
    "describe_error", "find_asked_model", "make_logprobs", "read_effort", "read_image", "read_inputs", "read_request",
    "refuse", "simplify",
]  # fmt: skip
