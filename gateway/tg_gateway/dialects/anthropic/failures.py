"""Error -> Anthropic's JSON: a refusal, or the event that ends a stream that failed."""

from typing import Final

import msgspec

from tg_gateway.dialects import Answer, FieldNames, server_sent_event
from tg_schema import TgError, encode
from tg_schema.errors import ContextLengthExceeded, Unavailable

OVERLOADED_STATUS: Final = 529
"""Anthropic's status if no processor can answer now."""

_TOO_LONG: Final = "prompt is too long: "
"""The beginning of Anthropic's sentence, by which its clients recognise that they must shorten the conversation."""
_API_ERROR: Final = "api_error"
_INVALID_REQUEST: Final = "invalid_request_error"
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED_STATUS: "overloaded_error",
}


class FailureDetail(msgspec.Struct, frozen=True):
    """The object under `error`."""

    type: str
    message: str


class MessageFailure(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """An error."""

    error: FailureDetail
    request_id: str


def make_headers(request_id: str) -> dict[str, str]:
    """The headers of every answer; Anthropic's SDKs show the id with an error."""
    return {"request-id": request_id}


def refuse(error: TgError, status: int, request_id: str) -> Answer:
    """The answer to a request that failed before its first byte.

    Anthropic's SDKs try 408, 409, 429 and 5xx again, unless `x-should-retry` says otherwise.
    """
    status = OVERLOADED_STATUS if status == Unavailable.status else status
    headers = make_headers(request_id) | {"x-should-retry": "true" if error.retryable else "false"}
    return Answer(encode(_describe(error, status, request_id)), status, headers=headers)


def encode_failure_event(error: TgError, request_id: str) -> bytes:
    """The last event of a stream that failed."""
    status = OVERLOADED_STATUS if error.status == Unavailable.status else error.status
    return server_sent_event(encode(_describe(error, status, request_id)), b"error")


def _describe(error: TgError, status: int, request_id: str) -> MessageFailure:
    kind = _TYPES.get(status) or (_INVALID_REQUEST if status < 500 else _API_ERROR)
    words = error.message
    if isinstance(error, ContextLengthExceeded):
        words = _TOO_LONG + error.phrase("{tokens} tokens > {maximum} maximum")
    return MessageFailure(FailureDetail(kind, words), request_id)


MESSAGES_FIELDS: Final = FieldNames(
    {
        "stop": "stop_sequences",
        "max_tokens": "max_tokens",
        "schema": "output_config.format.schema",
        "reasoning": "thinking",
        "messages": "messages",
        "tools": "tools",
        "tool_choice": "tool_choice",
    },
)
