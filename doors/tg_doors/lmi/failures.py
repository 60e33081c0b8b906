"""Error -> LMI's JSON: for its front end, an unreadable body, a generation, and a dynamic batch."""

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from tg_doors.lmi.answer_shapes import Details, GeneratedText
from tg_doors.lmi.invocation import PayloadError
from tg_doors.lmi.line_writer import encode_failed_line
from tg_doors.lmi.output_formats import FORMATS
from tg_gateway.dialects import Answer, FieldNames, abridge_body
from tg_schema import TgError, decode, encode, try_decode
from tg_schema.errors import BadRequest, BusError, NotFound, RateLimited, TooLarge, Unavailable

FAILED_DEPENDENCY: Final = 424
"""LMI's status for a failed generation."""
FRONT_END: Final = (NotFound, RateLimited, Unavailable, BusError)
"""Errors that LMI's front end answers itself: it lacks the model, or capacity for the request."""
TYPES: Final = {
    400: "BadRequestException",
    401: "UnauthorizedException",
    403: "AccessDeniedException",
    404: "ModelNotFoundException",
    405: "MethodNotAllowedException",
    408: "RequestTimeoutException",
    413: "PayloadTooLargeException",
    415: "UnsupportedMediaTypeException",
    503: "ServiceUnavailableException",
}
"""Status -> the name of its error; any other status is an `InternalServerException`."""


class FrontEndFailure(msgspec.Struct, frozen=True):
    """An error of the front end."""

    code: int
    type: str
    message: str


class PayloadFailure(msgspec.Struct, frozen=True):
    """An error of a body."""

    error: str
    code: int = FAILED_DEPENDENCY


class HandlerFailure(msgspec.Struct, frozen=True):
    """An error of a dynamic batch, or of one of its texts."""

    code: int
    message: str
    error: str

    @classmethod
    def of(cls, error: TgError) -> Self:
        """The object of an error."""
        return cls(FAILED_DEPENDENCY, "invoke handler failure", error.message)


class _Formatted(msgspec.Struct, frozen=True):
    output_formatter: str | None = None


def refuse(
    error: TgError,
    status: int,
    sent: Mapping[str, msgspec.Raw] | None,
    *,
    compatible: bool,
    rolling: bool,
    formatter: str = "",
) -> Answer:
    """The answer to a request that failed before its first byte.

    Args:
        error: why.
        status: the HTTP status; if it differs from the error's own, the request was refused unread.
        sent: the fields of the request's body, as far as they can be read; None = it was not read.
        compatible: whether TGI's names are wanted.
        rolling: whether one text is answered by an object.
        formatter: the output formatter of requests that name none; "" = by `stream`.
    """
    fields = sent or {}
    listed = bytes(fields.get("inputs", b"")).startswith(b"[")
    # Check this first: an empty body was read too.
    if isinstance(error, PayloadError) and not listed:
        return Answer(encode(PayloadFailure(error.message)), FAILED_DEPENDENCY)
    if sent is None or status != error.status or isinstance(error, FRONT_END):
        # LMI throttles with 503.
        status = Unavailable.status if status == RateLimited.status else status
        kind = TYPES.get(status, "InternalServerException")
        return Answer(encode(FrontEndFailure(status, kind, error.message)), status)
    if not rolling or listed:
        return Answer(encode(HandlerFailure.of(error)), FAILED_DEPENDENCY)
    status = 400 if isinstance(error, BadRequest | TooLarge) else FAILED_DEPENDENCY
    if _is_streamed(fields, formatter):
        return Answer(encode_failed_line(error, compatible=compatible), status)
    whole = GeneratedText("", Details("error", None, None, None), error.message, status)
    return Answer(encode([whole] if compatible else whole), status)


def read_fields(body: bytes) -> Mapping[str, msgspec.Raw]:
    """The fields of a body; none if it cannot be read."""
    return try_decode(dict[str, msgspec.Raw], body) or {}


def abridge(body: bytes, names: Iterable[str]) -> bytes:
    """The parts of a body that a refusal needs: these fields, and the output formatter in its parameters."""
    kept, formatter = abridge_body(body, names), _name_formatter(read_fields(body))
    if formatter not in FORMATS:
        return kept
    return encode(decode(dict[str, msgspec.Raw], kept) | {"parameters": {"output_formatter": formatter}})


def _is_streamed(sent: Mapping[str, msgspec.Raw], formatter: str) -> bool:
    """Whether the answer would have been a stream, which the formatter decides before `stream` does."""
    form = FORMATS.get(_name_formatter(sent) or formatter)
    by_stream = bytes(sent.get("stream", b"")) == b"true"
    return by_stream if form is None or form.streaming is None else form.streaming


def _name_formatter(sent: Mapping[str, msgspec.Raw]) -> str:
    """The output formatter that the parameters name, if they can be read."""
    parameters = try_decode(_Formatted, bytes(sent.get("parameters", b"null")))
    return (parameters.output_formatter if parameters else None) or ""


LMI_FIELDS: Final = FieldNames(
    {
        "max_tokens": "parameters.max_new_tokens",
        "min_tokens": "parameters.min_length",
        "ignore_eos": "parameters.ignore_eos_token",
        "stop": "parameters.stop_sequences",
        "stop_ids": "parameters.stop_token_ids",
        "keep_stop": "parameters.include_stop_str_in_output",
        "echo": "parameters.return_full_text",
        "adapter": "adapters",
    },
    prefix="parameters.",
)
