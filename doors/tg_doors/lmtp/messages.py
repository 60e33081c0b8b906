"""LMTP message <-> values: one text message `TYPE JSON`. Clients send an object, we a list of objects; errors."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from tg_gateway.dialects import FieldNames, text_frame
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest

StreamId = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The number that a client gives a stream. JSON has larger ones, which could not be written back."""
RequestKey = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
"""A client's name for one answer. The same name with another API key is another answer."""
_STREAM_ID: Final = re.compile(rb'"stream_id"\s{0,9}:\s{0,9}(\d{1,18})\s{0,9}[,}]')
"""Finds the stream id in a message that is not valid JSON, so that its client gets an error for the stream."""


class _Named(msgspec.Struct, frozen=True):
    stream_id: StreamId | None = None


def split_message(message: bytes) -> tuple[str, bytes]:
    """A message's type and its JSON; each is empty if it is missing."""
    kind, _, payload = message.partition(b" ")
    return kind.decode("ascii", "replace"), payload


def find_stream_id(payload: bytes) -> int | None:
    """The stream of an otherwise malformed message, so that its sender knows which one failed."""
    try:
        return decode(_Named, payload).stream_id
    except BadRequest:
        # Bounded repetitions: on a megabyte of blanks the search stays linear.
        found = _STREAM_ID.search(payload)
        return int(found[1]) if found else None


def encode_message(kind: bytes, items: Sequence[object]) -> bytes:
    """One message of the server, as a frame."""
    return text_frame(b"%b %b" % (kind, encode(items)))


class _Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    stream_id: int | None
    error: str
    # The rest is for clients that have accepted "ERRORS".
    code: str | None = None
    retryable: bool | None = None
    retry_after_ms: int | None = None


def encode_error(stream: int | None, error: TgError, *, typed: bool, ends: bool = False) -> bytes:
    """An error.

    Args:
        stream: the stream that has the error, if that is known.
        error: the error.
        typed: whether to add the kind of the error, and whether to retry.
        ends: whether it ends the stream.
    """
    failed = _Failed(stream, error.message)
    if typed:
        wait = None if error.retry_after is None else round(error.retry_after * 1000)
        failed = _Failed(stream, error.message, error.type, error.retryable, wait)
    return encode_message(b"TOKEN" if ends else b"MSG", [failed])


LMTP_FIELDS: Final = FieldNames(
    {
        "logprobs": "top_logprobs",
        "scored": "scored",
    },
)


class StreamNotices:
    """The notices of one stream, for a client that accepts them.

    Args:
        tell: sends a notice of this kind.

    Attributes:
        taken: whether a processor is known to have the request.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.taken = False
        self._tell = tell
        self._loading = False
        self._started = False

    def queue(self, *, loading: bool) -> None:
        """The request is queued. Also sends `loading` if every processor of its model has yet to load it."""
        self._tell("queued")
        if loading:
            self._load()

    def open(self) -> None:
        """The processor that has the request opens the model first, even if other processors have it open."""
        self.taken = True
        self._load()

    def start(self) -> None:
        """A processor works on it."""
        self.taken = True
        if not self._started:
            self._started = True
            self._tell("started")

    def begin(self) -> None:
        """Its first items are about to be sent. After `loading`, `started` comes first, however early the items are."""
        self.taken = True
        if self._loading:
            self.start()

    def _load(self) -> None:
        if not (self._loading or self._started):
            self._loading = True
            self._tell("loading")
