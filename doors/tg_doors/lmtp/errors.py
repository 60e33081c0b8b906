"""Error -> LMTP: an item of a TOKEN message where a stream ends with it, of a MSG message everywhere else."""

import msgspec

from tg_doors.lmtp.messages import encode_message
from tg_schema import TgError


class _Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    stream_id: int | None
    error: str
    # The rest is for clients that have accepted "ERRORS".
    code: str | None = None
    retryable: bool | None = None
    retry_after_ms: int | None = None


def encode_stream_error(stream: int, error: TgError, *, typed: bool) -> bytes:
    """The item that ends a stream; with `typed`, what kind of error it is, and whether to ask again."""
    return encode_message(b"TOKEN", [_describe(stream, error, typed=typed)])


def encode_error(stream: int | None, error: TgError, *, typed: bool) -> bytes:
    """An error that ends no stream; `stream` is what the message was about, where that is known."""
    return encode_message(b"MSG", [_describe(stream, error, typed=typed)])


def _describe(stream: int | None, error: TgError, *, typed: bool) -> _Failed:
    if not typed:
        return _Failed(stream, error.message)
    wait = None if error.retry_after is None else round(error.retry_after * 1000)
    return _Failed(stream, error.message, error.type, error.retryable, wait)
