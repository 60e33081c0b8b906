"""Provider's socket -> bytes of an answer: one connection of HTTP/1.1, with small reads and bounded heads.

httptools parses. A connection is reused only if the last request was sent whole, its answer arrived whole, and nothing
followed it: such bytes would be taken for the next customer's answer.
"""

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict
from typing_extensions import override

from tg_base.llm.http.answer import HttpAnswer
from tg_base.llm.http.failures import BROKEN
from tg_schema import TgError
from tg_schema.errors import IncompleteStream, ProtocolError

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of an answer's headers, including those of all interim responses (1xx)."""

READ_BYTES = 16 * 1024
"""The most bytes of one read."""

WRITE_BYTES = 128 * 1024
"""Bytes of a request that are written at once; between two parts the loop has a turn."""

UPGRADE = 101
"""The status by which a server switches to another protocol, which we never ask for."""

_EMPTY = {204, 304}
"""Statuses whose answers have no body."""
_NO_FIELDS: Final[CIMultiDict[str]] = CIMultiDict()
"""Never written: once an answer has its headers, its connection keeps none."""
_ENDLESS = f"the provider sent {MAX_HEAD_BYTES} bytes of headers or interim responses, and no answer; check base_url"


class BrokenHeadError(OSError):
    """The connection ended, or sent something other than the head of an answer."""


class HttpConnection(asyncio.BufferedProtocol):
    """One socket, with one request at a time.

    Args:
        room: where reads go: an event loop would otherwise read up to 256 KiB, which are all parsed in one turn. All
            connections share it, since its bytes are copied before the next one reads.
        keep: called when the connection may be reused; None = it is never reused, and its user closes it or hands its
            socket over.
        open_ones: contains it while it is open.

    Attributes:
        transport: set once it is connected.
        idle: the timer that closes it if it stays unused; None before it was first kept.
    """

    transport: asyncio.Transport

    def __init__(
        self, room: memoryview, keep: "Callable[[HttpConnection], None] | None", open_ones: "set[HttpConnection]"
    ) -> None:
        self.idle: asyncio.TimerHandle | None = None
        self._room = room
        self._keep = keep
        self._open = open_ones
        self._head: asyncio.Future[HttpAnswer] | None = None
        self._answer: HttpAnswer | None = None
        self._headers = _NO_FIELDS
        self._head_bytes = 0
        self._until_end = self._reusable = self._sent = False
        self._drained: asyncio.Future[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._poll: select.poll | None = None
        # The parser calls this for each chunk, and one read may have thousands.
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    async def ask(self, head: bytes, body: bytes) -> HttpAnswer:
        """Send a request, and return the answer once its head has come.

        Raises:
            BrokenHeadError: no valid head arrived.
            ProtocolError: the head is too long.
        """
        self._head = asyncio.get_running_loop().create_future()
        self._head_bytes, self._sent = 0, False
        answer = None
        try:
            if len(body) <= WRITE_BYTES:
                self.transport.write(head + body)
                self._sent = True
            else:
                # The answer may come before all is sent. If it is a refusal, for instance because of the size, the rest
                # is not sent.
                self._writing = asyncio.create_task(self._write(head, memoryview(body)))
            answer = await self._head
            return answer
        finally:
            if answer is None:
                self.transport.abort()
            elif self._writing is not None and not answer.good:
                self._writing.cancel()
            self._head = None
            if self._answer is not None and self._answer.ended:
                self._release()

    async def _write(self, head: bytes, body: memoryview) -> None:
        self.transport.write(head)
        for start in range(0, len(body), WRITE_BYTES):
            if self._drained is not None:
                await self._drained
            await asyncio.sleep(0)
            self.transport.write(body[start : start + WRITE_BYTES])
        self._sent = True

    def is_usable(self) -> bool:
        """Whether an idle connection may be used: no bytes have come, and the system accepts writes.

        TLS does not show its buffered bytes, and the loop reads received bytes only in its next turn.
        """
        if self.transport.is_closing():
            return False
        if self._poll is None:
            # Cached: the connection is used only while its socket is open.
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLOUT)
        return [event for _, event in self._poll.poll(0)] == [select.POLLOUT]

    def hand_over(self) -> None:
        """Give up its socket; another protocol handles its end from now on."""
        self._parser = None
        self._open.discard(self)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._parser is None or (self._head is None and self._answer is None):
            # Nobody has requested these bytes.
            self.transport.abort()
            return
        try:
            with suppress(HttpParserUpgrade):
                self._parser.feed_data(self._room[:nbytes])
        except HttpParserError:
            self._fail()
            return
        if self._answer is not None and self._answer.ended:
            self._parts.clear()
            # The last user's task may not have run yet: it could end or abort the next request.
            if self._head is None:
                self._release()
            return
        if self._parts:
            self._put()
            nbytes = -self._head_bytes
        # These bytes belong to a head, or to trailers after the body.
        self._head_bytes += nbytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(ProtocolError(_ENDLESS) if self._answer is None else None)

    # The parser calls these methods for each message: an answer, or an interim response.

    def on_message_begin(self) -> None:
        """Bytes follow the answer, or the next head begins."""
        if self._answer is None:
            self._headers = CIMultiDict()
        else:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one of the answer's headers, or of the trailers after its body, which are ignored."""
        if self._answer is None:
            self._headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """The answer's head has arrived, unless it is an interim response."""
        parser: Any = self._parser
        status = parser.get_status_code()
        if self._answer is None and (status >= 200 or status == UPGRADE):
            bounded = "content-length" in self._headers or "transfer-encoding" in self._headers or status in _EMPTY
            self._until_end, self._reusable = not bounded, parser.should_keep_alive() and status != UPGRADE
            self._answer = HttpAnswer(self.transport, status, self._headers)
            self._headers = _NO_FIELDS
            if self._head is not None and not self._head.done():
                self._head.set_result(self._answer)

    def on_message_complete(self) -> None:
        """The whole answer has come, or an interim response."""
        if self._answer is not None and not self._answer.ended:
            self._put()
            self._answer.end()

    def _put(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        if data and self._answer is not None and not self._answer.ended:
            self._answer.put(data)

    def _release(self) -> None:
        self._answer = None
        if self._keep is None:
            return
        # Ask only after a request: before that, uvloop counts the end of TLS's handshake.
        if self._reusable and self._sent and not self.transport.get_write_buffer_size():
            self._keep(self)
        else:
            self.transport.abort()

    def _fail(self, error: TgError | None = None) -> None:
        """End the answer, or the wait for one."""
        self.transport.abort()
        self._put()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.ended:
            answer.end(error or IncompleteStream(BROKEN))
        elif self._head is not None and not self._head.done():
            self._head.set_exception(error or BrokenHeadError())

    @override
    def eof_received(self) -> None:
        # Skip this if the connection is lost, as after our own abort.
        if self._answer is not None and self._until_end:
            self._answer.end()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        # The parser refers to this object's methods: a cycle.
        self._parser = None
        self._open.discard(self)
        self._fail()
        if self._writing is not None:
            self._writing.cancel()

    @override
    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    @override
    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
