"""Error -> our own JSON, as a refusal and as a stream's last event."""

import msgspec

from tg_schema import TgError, encode
from tg_schema.agent import ChunkType


class FailedDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object under `error`; `retry_after` is in seconds, and the counts are those of a prompt that is too long."""

    type: str
    message: str
    retry_after: float | None = None
    tokens: int | msgspec.UnsetType = msgspec.UNSET
    maximum: int | msgspec.UnsetType = msgspec.UNSET


class NativeRefusal(msgspec.Struct, frozen=True):
    """A refusal."""

    error: FailedDetail


class NativeFailure(msgspec.Struct, frozen=True):
    """The last event of a stream that failed."""

    error: FailedDetail
    end_of_stream: bool = True


def encode_refusal(error: TgError) -> bytes:
    """`{"error":{"type","message"}}`, with `retry_after` in seconds if it is known."""
    return encode(NativeRefusal(_make_failed(error)))


def encode_failure(error: TgError) -> bytes:
    """The last event of a stream that failed."""
    return encode(NativeFailure(_make_failed(error)))


def encode_agent_failure(error: TgError) -> bytes:
    """The last event of a dialog that failed."""
    kind: ChunkType = "error"
    told = {"content": error.message, "error": _make_failed(error), "chunk_type": kind, "message_type": kind}
    return encode({**told, "end_of_message": True, "end_of_dialog": True})


def _make_failed(error: TgError) -> FailedDetail:
    record = error.record
    return FailedDetail(error.type, error.message, error.retry_after, record.tokens, record.maximum)
