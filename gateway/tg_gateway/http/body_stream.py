"""A writer's bytes -> one HTTP client: the body of a streaming answer, written without waiting.

The head is sent together with the first bytes, in one write. If it was sent earlier, it would cost a packet, and fix
the status too early.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from contextvars import Context
from email.utils import formatdate
from functools import lru_cache
from types import MappingProxyType, TracebackType
from typing import Any, Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from typing_extensions import override

from tg_base.runtime import LATE_SECONDS
from tg_gateway.dialects import (
    END_OF_EVENT,
    MAX_WRITE_BYTES,
    Output,
    StreamedAnswer,
    Writer,
    append_output,
    join_output,
    measure_output,
    slice_output,
    split_output,
)
from tg_gateway.http.middleware import CLOSES, DOOR, ENTRY, DefectJudge
from tg_gateway.relay import Sink
from tg_schema import TgError
from tg_schema.errors import Cancelled, SlowConsumer

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
END_OF_BODY = b"0\r\n\r\n"
"""The last chunk of a chunked body (RFC 9112, section 7.1)."""


class BodyStream(web.StreamResponse, Sink):
    """Enter it to keep the connection alive while no bytes come; leave it after the last.

    After a defect, or an error that the protocol cannot express, the connection is cut, since the body has no proper
    end. If nothing has been written yet, it raises the error instead: the caller answers with a real status.

    Args:
        request: the client's request. An HTTP/1.0 client gets the same body unchunked, ended by the connection's end.
        head: has the content type, the bytes to send during silence, and what to do after a failure.
        headers: further headers; names and values are ours, free of line breaks.
        keep_alive: seconds of silence after which the head's `keep_alive` is sent; the first also sends the head.
        patience: seconds that waiting bytes may stay unread before the connection is cut.

    Attributes:
        started: whether the head was sent, so that the status can no longer be changed.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        head: Writer[Any] | StreamedAnswer,
        headers: Mapping[str, str],
        keep_alive: float,
        patience: float,
    ) -> None:
        super().__init__()
        if request.transport is None:
            raise Cancelled("the client left")
        self.started = False
        self._ended = False
        self._request = request
        self._transport = request.transport
        self._protocol = request.protocol
        self._answer_head = head
        self._more_headers = headers
        self._chunked = request.version >= HttpVersion11
        # Unchunked, the end of the connection is the only end of the body.
        self._keeps = self._chunked and request.keep_alive and not request.get(CLOSES, False)
        self._patience = patience
        self._silence = keep_alive
        self._loop = asyncio.get_running_loop()
        self._wrote_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        # A deque with the first large output: an empty one takes 0.7 KiB.
        self._unwritten: deque[bytes | memoryview] | None = None

    def __enter__(self) -> "BodyStream":
        # Stop the server's timer, which is for idle connections; it starts a new one after the answer.
        self._protocol.keep_alive(True)
        due = self._wrote_at + self._silence + LATE_SECONDS
        self._timer = self._loop.call_at(due, self._silent, context=Context())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        try:
            DefectJudge(self._request).__exit__(kind, error, tb)
        except TgError as judged:
            if not self._cut(judged):
                raise
            return True
        return isinstance(error, TgError) and self._cut(error)

    def _cut(self, error: TgError) -> bool:
        if not self.started:
            return False
        # The client would read the middleware's status line as part of this body, and take its end for a whole answer.
        self._request[ENTRY].end(200, error.type)
        self._transport.abort()
        return True

    @override
    def send(self, data: Output, *, last: bool) -> None:
        if self._unwritten or not isinstance(data, bytes) or len(data) > MAX_WRITE_BYTES:
            self._send_large(data, last=last)
            return
        # An empty chunk would be the end of the body (RFC 9112, section 7.1).
        if data and self._chunked:
            data = _frame_events(data) if self._answer_head.events_apart else b"%x\r\n%b\r\n" % (len(data), data)
        if last:
            self._ended = True
            data += END_OF_BODY if self._chunked else b""
        # Send the head for an empty answer too: an answer without any event still needs it.
        if not self.started and (data or last):
            data = self._head() + data
            self.started = True
        if data:
            self._write(data)

    def send_head(self) -> None:
        """The head alone, as the whole answer to a HEAD: its client reads nothing more of it (RFC 9110, 9.3.2)."""
        self.started = self._ended = True
        self._write(self._head())

    def _send_large(self, data: Output, *, last: bool) -> None:
        """As `send`, for bytes that take several turns of the event loop; `drain` writes the rest."""
        size, head = measure_output(data), b""
        if not self.started:
            head, self.started = self._head(), True
        if size and self._chunked and self._answer_head.events_apart:
            data = _frame_events(join_output(data))
        elif size and self._chunked:
            data = append_output((b"%x\r\n" % size,), (*split_output(data), b"\r\n"))
        if last:
            self._ended = True
            data = append_output(data, END_OF_BODY if self._chunked else b"")
        self._unwritten = self._unwritten or deque()
        self._unwritten.extend(slice_output(append_output(head, data)))

    def _write(self, data: bytes | memoryview) -> None:
        self._wrote_at = self._loop.time()
        # asyncio warns of each write to a connection that is lost.
        if not self._transport.is_closing():
            self._transport.write(data)

    def fail(self, error: TgError) -> None:
        """Say why the answer failed, after its first bytes have been sent."""
        self._request[ENTRY].end(200, error.type)
        # Without the final chunk a body that was cut does not look complete.
        self.send(self._answer_head.fail(error), last=not self._answer_head.cut_after_failure)

    @property
    @override
    def full(self) -> bool:
        return bool(self._unwritten) or self._protocol.writing_paused

    @override
    async def drain(self) -> None:
        try:
            await self._drain_once()
            while self._unwritten:
                self._write(self._unwritten.popleft())
                # The connection takes this slice in the next turn; then we may have to wait for the client.
                await asyncio.sleep(0)
                await self._drain_once()
        except TimeoutError:
            self._transport.abort()
            raise SlowConsumer("the client read nothing for too long") from None

    async def _drain_once(self) -> None:
        async with asyncio.timeout(self._patience):
            await self._request.writer.drain()

    def _head(self) -> bytes:
        framing = "Transfer-Encoding: chunked\r\n" if self._chunked else ""
        connection = "" if self._keeps else "Connection: close\r\n"
        headers = {"Content-Type": self._answer_head.content_type, **self._answer_head.headers, **self._more_headers}
        headers["Date"] = _date(int(time.time()))
        self._more_headers = _NO_HEADERS
        if (door := self._request.get(DOOR)) is not None:
            # Only refusals in the dialect's shape need it, and none can follow now.
            door.call.body = b""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        # A writer may repeat in a header what its client sent. With a line break, that client could write the rest of
        # the head.
        if not lines.count("\n") == lines.count("\r") == len(headers):
            raise ValueError("a header of the writer has a line break")
        return f"HTTP/1.1 200 OK\r\n{lines}{framing}{connection}\r\n".encode()

    def _silent(self) -> None:
        """One timer for the whole stream, moved only when it fires."""
        now = self._loop.time()
        due = self._wrote_at + self._silence
        if now >= due:
            # A client that does not read needs no keep-alive, which would only add waiting bytes.
            if not self.full:
                self.send(self._answer_head.keep_alive, last=False)
            due = now + self._silence
        self._timer = self._loop.call_at(due + LATE_SECONDS, self._silent, context=Context())

    # The server calls this on every response; here the response was written already.

    @override
    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    @override
    async def write_eof(self, data: bytes = b"") -> None:
        return None

    @property
    @override
    def keep_alive(self) -> bool:
        return self._ended and self._keeps


def _frame_events(data: bytes) -> bytes:
    """Frame each of the whole events as a chunk of its own."""
    size = len(END_OF_EVENT)
    events = data.split(END_OF_EVENT)[:-1]
    return b"".join([b"%x\r\n%b%b\r\n" % (len(event) + size, event, END_OF_EVENT) for event in events])


@lru_cache(1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
