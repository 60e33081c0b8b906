"""Error -> TGI's JSON: `{"error", "error_type"}`, as the answer to a request, or as the event that ends a stream."""

from typing import Final, NamedTuple

import msgspec

from tg_gateway.dialects import Answer, FieldNames, server_sent_event
from tg_schema import TgError, encode
from tg_schema.errors import (
    BadRequest,
    BusError,
    ContentFilter,
    ContextLengthExceeded,
    IncompleteStream,
    PeerError,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    SchemaViolation,
    SlowConsumer,
    Timeout,
    TooLarge,
    Unavailable,
)

EVENTS: Final = "text/event-stream; charset=utf-8"


class _Kind(NamedTuple):
    """TGI's name of an error, and its status."""

    error_type: str
    status: int


_TOO_LONG: Final = "Input validation error: `inputs` must have less than {maximum} tokens. Given: {tokens}"
"""TGI's sentence."""
_VALIDATION: Final = _Kind("validation", 422)
_GENERATION: Final = _Kind("generation", 424)
_KINDS: Final = {
    BadRequest.type: _VALIDATION,
    ContextLengthExceeded.type: _VALIDATION,
    TooLarge.type: _VALIDATION,
    RateLimited.type: _Kind("overloaded", 429),
    IncompleteStream.type: _Kind("incomplete_generation", 500),
    ContentFilter.type: _GENERATION,
    Timeout.type: _GENERATION,
    ProviderAuth.type: _GENERATION,
    ProtocolError.type: _GENERATION,
    SchemaViolation.type: _GENERATION,
    Unavailable.type: _GENERATION,
    SlowConsumer.type: _GENERATION,
    BusError.type: _GENERATION,
    PeerError.type: _GENERATION,
}
"""TGI's types. Errors that it does not have keep our type and status, and its clients recognise them by the status."""


class Failure(msgspec.Struct, frozen=True):
    """An error. TGI's clients choose the exception by `error_type`."""

    error: str
    error_type: str


def encode_failure(error: TgError) -> bytes:
    """The JSON of an error."""
    words = error.phrase(_TOO_LONG) if isinstance(error, ContextLengthExceeded) else error.message
    return encode(Failure(words, _kind_of(error).error_type))


def encode_failure_event(error: TgError) -> bytes:
    """The only event of a request that failed, or the last of a stream."""
    return server_sent_event(encode_failure(error))


def refuse(error: TgError, status: int, *, read: bool, streamed: bool) -> Answer:
    """The answer to a request that failed before its first byte.

    Args:
        error: why.
        status: HTTP's. The answer has this status only if the request itself was refused (its key, its path, its size).
        read: whether the body was read; then the error is about its content.
        streamed: whether a stream was requested: then TGI's answer is 200, and the error is its only event.
    """
    if streamed:
        return Answer(encode_failure_event(error), 200, EVENTS)
    own = read and status == error.status
    return Answer(encode_failure(error), _kind_of(error).status if own else status)


def _kind_of(error: TgError) -> _Kind:
    return _KINDS.get(error.type) or _Kind(error.type.replace("-", "_"), error.status)


TGI_FIELDS: Final = FieldNames(
    {
        "max_tokens": "parameters.max_new_tokens",
        "logprobs": "parameters.top_n_tokens",
        "prompt_logprobs": "parameters.decoder_input_details",
        "schema": "parameters.grammar.value",
        "regex": "parameters.grammar.value",
        "adapter": "parameters.adapter_id",
        "echo": "parameters.return_full_text",
        "n": "parameters.best_of",
    },
    prefix="parameters.",
)
