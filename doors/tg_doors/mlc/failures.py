"""Error -> MLC-LLM's JSON: FastAPI's `detail` for a wrong field, otherwise an object that is encoded twice."""

import re
from typing import Final

import msgspec

from tg_gateway.dialects import Answer, InvalidParameter
from tg_schema import TgError, encode
from tg_schema.errors import ContextLengthExceeded, NotFound

VALIDATION_STATUS: Final = 422
"""FastAPI's status for an invalid body."""
UNKNOWN_MODEL_STATUS: Final = 400
_TOO_LONG: Final = "Request prompt has {tokens} tokens in total, larger than the model input length limit {maximum}."
_STEP: Final = re.compile(r"\[(?P<number>\d+)\]|(?P<name>[^.\[\]]+)")


class _Failure(msgspec.Struct, frozen=True):
    object: str
    message: str
    code: int


class WrongField(msgspec.Struct, frozen=True):
    """A wrong field in FastAPI's form."""

    type: str
    loc: tuple[str | int, ...]
    msg: str


class Validation(msgspec.Struct, frozen=True):
    """The refusal of a body with a wrong field."""

    detail: tuple[WrongField, ...]


def encode_failure(error: TgError) -> bytes:
    """The JSON of the event that ends a stream that failed: there the object is encoded once."""
    return encode(_Failure("error", error.message, error.status))


def refuse(error: TgError, status: int, *, known_path: bool) -> Answer:
    """The answer to a request that failed before its first byte.

    Args:
        error: the reason.
        status: the HTTP status. An unknown model is 400 here, and a wrong field 422.
        known_path: whether a mount has the request's path and method.
    """
    if isinstance(error, InvalidParameter):
        missing = error.code == "missing_required_parameter"
        wrong = WrongField("missing" if missing else "value_error", _locate(error.param), error.message)
        return Answer(encode(Validation((wrong,))), VALIDATION_STATUS)
    if known_path and isinstance(error, NotFound):
        status = UNKNOWN_MODEL_STATUS
    words = error.phrase(_TOO_LONG) if isinstance(error, ContextLengthExceeded) else error.message
    text = encode(_Failure("error", words, status)).decode()
    return Answer(encode(text), status)


def _locate(param: str) -> tuple[str | int, ...]:
    """A field's path, such as `messages[0].role`, in FastAPI's form."""
    steps = (int(step["number"]) if step["number"] else step["name"] for step in _STEP.finditer(param))
    return ("body", *steps)
