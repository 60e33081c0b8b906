"""Error -> OpenAI's JSON: a refusal, or the event that ends a stream that failed.

`{"error":{"message","type","param","code"}}`, all four always there: OpenAI's description (`Error`) requires them, and
its SDKs copy them into the exception. They choose its class by the status alone.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Answer, Call, Dialect, InvalidParameter
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest, ContentFilter, NotFound, RateLimited, TooLarge, Unauthorized

Body = TypeVar("Body", bound=msgspec.Struct)

INVALID_REQUEST: Final = "invalid_request_error"
"""The type of every error that the client must fix."""
_CODES: Final = {
    BadRequest.type: None,
    Unauthorized.type: "invalid_api_key",
    NotFound.type: "model_not_found",
    TooLarge.type: "request_too_large",
    ContentFilter.type: "content_filter",
    RateLimited.type: "rate_limit_exceeded",
}
"""Codes that users of the SDKs know; all other errors have the name of our own type."""
_PLACE: Final = re.compile(r"(?: - at| in) `\$\.?(?P<path>[^`]+)`$")


class ErrorObject(msgspec.Struct, frozen=True):
    """The object under `error`."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """An error."""

    error: ErrorObject


def describe_error(error: TgError) -> ErrorObject:
    """An error in OpenAI's format."""
    if isinstance(error, InvalidParameter):
        return ErrorObject(error.message, INVALID_REQUEST, error.param, error.code)
    param = "model" if isinstance(error, NotFound) else None
    return ErrorObject(error.message, _type_of(error), param, _CODES.get(error.type, error.type.replace("-", "_")))


def encode_failure(error: TgError) -> bytes:
    """The JSON of a refusal, and of the event in mid-stream that makes the SDKs raise `APIError`."""
    return encode(Failure(describe_error(error)))


def refuse(error: TgError, status: int, *, known_path: bool) -> Answer:
    """The answer to a request that failed before its first byte.

    `x-should-retry` says whether the SDKs try again, which without it they do after 408, 409, 429 and 5xx.

    Args:
        error: why.
        status: the status of the answer. If it is not the error's own status, HTTP has refused the request, and no code
            fits.
        known_path: whether a mount has the request's path and method; if not, the error is not about a field.
    """
    detail = describe_error(error)
    # HTTP itself refused the request; a code or field of ours would mislead.
    if not known_path or status != error.status:
        detail = ErrorObject(error.message, detail.type)
    headers = {"x-should-retry": "true" if error.retryable else "false"}
    return Answer(encode(Failure(detail)), status, headers=headers)


def decode_body(kind: type[Body], body: bytes) -> Body:
    """Read a request's JSON; unknown fields are ignored.

    Raises:
        InvalidParameter: a field is wrong; `param` is its path.
        BadRequest: it is no JSON.
    """
    try:
        return decode(kind, body)
    except BadRequest as error:
        if place := _PLACE.search(error.message):
            raise InvalidParameter(error.message, place["path"], "invalid_value") from None
        raise


def refuse_unsupported(body: msgspec.Struct, advice: Mapping[str, str]) -> None:
    """Refuse fields that no record has; null and false ask for nothing.

    Args:
        body: what the client sent.
        advice: what to do instead of sending these fields.

    Raises:
        InvalidParameter: the body has one of them.
    """
    for name, words in advice.items():
        value = getattr(body, name)
        if value is not None and value is not False:
            raise InvalidParameter(f"{name} is not supported: {words}", name, "unsupported_parameter")


def _type_of(error: TgError) -> str:
    if isinstance(error, RateLimited):
        return "rate_limit_error"
    return INVALID_REQUEST if error.status < 500 else "server_error"


class OpenAiShaped(Dialect):
    """A protocol whose refusals are OpenAI's."""

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))
