"""Provider's socket -> one answer -> the reader of its body, part by part."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tg_base.llm.http.failures import BROKEN
from tg_base.llm.http.stream_reader import Take
from tg_schema import TgError
from tg_schema.errors import IncompleteStream

MAX_UNREAD_READS = 2
"""Reads that are buffered for a reader before the socket is paused."""

MAX_OFFERED_BYTES = 4 * 1024
"""The largest read that is offered to a body's listener: after a larger one the loop may read again at once."""
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class HttpAnswer:
    """One answer. It is created when its head has arrived, perhaps before its body.

    Args:
        transport: the connection's transport, which belongs to the answer alone until it has ended.
        status: the HTTP status.
        headers: case-insensitive.

    Attributes:
        status, headers: as given.
        ended: whether the whole body has come: `read` does not wait any more.
    """

    __slots__ = ("_buffer", "_error", "_take", "_transport", "_waiter", "ended", "headers", "status")

    def __init__(self, transport: asyncio.Transport, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.ended = False
        self._transport: asyncio.Transport | None = transport
        self._buffer: list[bytes] = []
        self._take: Take | None = None
        self._waiter: asyncio.Future[bytes] | None = None
        self._error: TgError | None = None

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        """The media type, in lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def encoded(self) -> bool:
        """Whether the body is compressed."""
        return self.headers.get("content-encoding", "").strip().lower() not in {"", "identity"}

    def drop_head(self) -> None:
        """Forget the headers, which a stream need not keep until its end."""
        self.headers = _NO_HEADERS

    def listen(self, take: Take) -> None:
        """While `read` waits, offer small reads to `take` first."""
        self._take = take

    def read(self) -> "asyncio.Future[bytes]":
        """The bytes that have arrived, at least one; b"" at the body's end. Raises IncompleteStream.

        A caller that is cancelled while it waits must close the answer, since bytes may have been lost.
        """
        # Not a coroutine, which would cost a step of the loop for each wait.
        taken: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._buffer:
            taken.set_result(self._buffer.pop() if len(self._buffer) == 1 else b"".join(self._buffer))
            self._resume()
            self._buffer.clear()
        elif self._error is not None:
            taken.set_exception(self._error)
        elif self.ended:
            taken.set_result(b"")
        else:
            self._waiter = taken
        return taken

    def put(self, data: bytes) -> None:
        """More of the body has come."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._buffer.append(data)
            if len(self._buffer) == MAX_UNREAD_READS and self._transport is not None:
                self._transport.pause_reading()
            return
        # Nothing follows a small read in this turn of the loop, so that no stream holds up the others.
        if self._take is not None and len(data) <= MAX_OFFERED_BYTES and not (data := self._take(data)):
            return
        self._waiter = None
        waiter.set_result(data)

    def end(self, error: TgError | None = None) -> None:
        """The whole body has arrived, or no more of it will."""
        self.ended, self._error = error is None, error
        self._resume()
        self._transport = None
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(b"")
            else:
                waiter.set_exception(error)

    def _resume(self) -> None:
        if len(self._buffer) >= MAX_UNREAD_READS and self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Release the connection; before the body's end this closes the socket."""
        if self._transport is not None:
            self._transport.abort()
            self.end(IncompleteStream(BROKEN))
