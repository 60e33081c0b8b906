"""Error -> Ollama's JSON, `{"error":text}`: a refusal, or the line that ends a stream that failed."""

from typing import Final

import msgspec

from tg_gateway.dialects import Answer, FieldNames
from tg_schema import TgError, encode


class Failure(msgspec.Struct, frozen=True):
    """An error. Besides the status, its sentence is all that Ollama's clients get."""

    error: str


def encode_failure(error: TgError) -> bytes:
    """The JSON of a refusal, and of a line in mid-stream."""
    return encode(Failure(error.message))


def refuse_absent(operation: str) -> Answer:
    """The answer to a request that would change the set of models."""
    sentence = (
        f"{operation} is not supported: the models of this server are those of its configuration; "
        "GET /api/tags lists them"
    )
    return Answer(encode(Failure(sentence)), 501)


OLLAMA_FIELDS: Final = FieldNames(
    {
        "max_tokens": "options.num_predict",
        "repetition_penalty": "options.repeat_penalty",
        "logprobs": "top_logprobs",
        "schema": "format",
        "reasoning": "think",
        "messages": "messages",
        "tools": "tools",
        "prompt": "prompt",
        "suffix": "suffix",
    },
    prefix="options.",
)
