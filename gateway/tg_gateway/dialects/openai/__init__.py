"""OpenAI's protocol: the list of models, chat completions, and the shape of its errors."""

from tg_gateway.dialects.openai.chat_messages import read_image
from tg_gateway.dialects.openai.chat_request import DIALECT, simplify
from tg_gateway.dialects.openai.dialect import OPENAI
from tg_gateway.dialects.openai.failures import (
    ErrorObject,
    InvalidParameter,
    decode_body,
    describe_error,
    encode_failure,
    refuse,
)
from tg_gateway.dialects.openai.mounts import OPENAI_MOUNTS
from tg_gateway.dialects.openai.usage import CompletionUsage, UsageTotals

__all__ = [
    "DIALECT",
    "OPENAI",
    "OPENAI_MOUNTS",
    "CompletionUsage",
    "ErrorObject",
    "InvalidParameter",
    "UsageTotals",
    "decode_body",
    "describe_error",
    "encode_failure",
    "read_image",
    "refuse",
    "simplify",
]
