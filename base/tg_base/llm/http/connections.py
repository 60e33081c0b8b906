"""Provider's socket -> aiohttp's connections, with limits of ours: small reads, bounded heads, cheap readers."""

import asyncio
import select
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, HttpResponseParser
from typing_extensions import override

from tg_base.llm.http.chunk_decoder import ChunkDecoder
from tg_base.llm.http.failures import BROKEN
from tg_base.llm.http.stream_reader import Take
from tg_base.runtime import FewItems
from tg_schema.errors import IncompleteStream

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of an answer's headers, including those of all interim responses (1xx)."""

READ_BYTES = 16 * 1024
"""Bytes of one read. aiohttp buffers twice as many, then it stops reading until the buffer is consumed."""

MAX_OFFERED_BYTES = 4 * 1024
"""The largest read that is offered to a body's listener: after one of `READ_BYTES` the loop may read again at once."""

UPGRADE = 101
"""The status by which a server switches to another protocol, which we never ask for."""

_HEAD_PART_BYTES = 4 * 1024
_HEAD_END = b"\r\n\r\n"
_BODY_END = b"0\r\n\r\n"
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class EndlessHeadError(aiohttp.ClientError):
    """The headers of an answer exceed `MAX_HEAD_BYTES`."""


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector, with connections that limit their reads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # All connections read into the same bytes, which are copied before the next one reads: at 16 KiB for each,
        # 4,096 streams would hold 64 MiB.
        room = memoryview(bytearray(READ_BYTES))
        # aiohttp has no public way to choose the protocol of its connections. A test fails if an upgrade stops using
        # this private factory.
        self._factory: Any = lambda: Handler(self._loop, room)


class _SmallReads(asyncio.BufferedProtocol):
    """Socket -> handler, in small reads: an event loop reads up to 256 KiB, which would all be parsed in one turn."""

    __slots__ = ("_handler", "_room")

    def __init__(self, handler: "Handler", room: memoryview) -> None:
        self._handler = handler
        self._room = room

    # Rare calls are forwarded here; bound methods of aiohttp's handler would take 64 bytes each.

    @override
    def pause_writing(self) -> None:
        self._handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._handler.resume_writing()

    @override
    def eof_received(self) -> None:
        self._handler.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    @override
    def buffer_updated(self, nbytes: int) -> None:
        handler = self._handler
        if handler.chunks is None:
            handler.data_received(bytes(self._room[:nbytes]))
        else:
            handler.take_chunks(handler.chunks, bytes(self._room[:nbytes]))


class Body(aiohttp.StreamReader):
    """The reader of aiohttp, without its list of where HTTP's chunks end, which costs a quarter of a small read.

    aiohttp's parser makes its readers itself; `Handler` turns each into one of these.
    """

    __slots__ = ()

    # A future of bytes; aiohttp's has no result.
    _waiter: Any

    # Both do nothing; `bool` does so without calling a Python function.
    begin_http_chunk_receiving = staticmethod(bool)  # type: ignore[assignment]
    end_http_chunk_receiving = staticmethod(bool)  # type: ignore[assignment]

    @staticmethod
    def of(reader: Any) -> "Body":
        """Turn a reader of aiohttp's parser into a `Body`."""
        reader.__class__ = Body
        reader._buffer = FewItems(reader._buffer)  # noqa: SLF001
        body: Body = reader
        return body

    @override
    def feed_data(self, data: bytes, size: int = 0) -> bool:
        # For a reader, b"" is the end.
        if not data:
            return False
        waiter, self._waiter = self._waiter, None
        # A waiting reader gets the data directly, not from the buffer.
        if waiter is not None and not waiter.done():
            waiter.set_result(data)
            return False
        buffer = self._buffer
        buffer.append(data)
        self._size += len(data)
        if self._size > self._high_water or len(buffer) > self._high_water_chunks:
            self._protocol.pause_reading()
        return False

    @override
    def feed_eof(self) -> None:
        protocol: Any = self._protocol
        # Before aiohttp releases the connection.
        protocol.in_use = False
        # aiohttp would end the wait with None.
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(b"")
        super().feed_eof()

    @override
    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        waiter, self._waiter = self._waiter, None
        super().set_exception(exc, *cause)
        if waiter is not None and not waiter.done():
            waiter.set_exception(IncompleteStream(BROKEN))

    def listen(self, take: Take) -> None:
        """Offer small reads of plain chunks to `take` while `Body.take` waits."""
        protocol: Any = self._protocol
        # This body may have ended: then the connection belongs to the next one.
        if protocol._payload is self:  # noqa: SLF001
            protocol.listener = take

    def is_awaited(self) -> bool:
        """Whether a reader waits."""
        return self._waiter is not None and not self._waiter.done()

    def is_untouched(self) -> bool:
        """Whether the parser has read nothing of this body."""
        # Until `of`, aiohttp's reader begins this list with the first chunk.
        return self._http_chunk_splits is None and not self._eof

    def take(self) -> asyncio.Future[bytes]:
        """As `readany`. Raises IncompleteStream if the connection broke or was closed.

        Not a coroutine: a waiting reader gets the data directly, which saves a step of each wait.
        """
        protocol, buffer = self._protocol, self._buffer
        taken: Any = self._loop.create_future()
        if self._exception is not None or (protocol.transport is None and not (buffer or self._eof)):
            taken.set_exception(IncompleteStream(BROKEN))
        elif len(buffer) == 1:
            self._size = 0
            taken.set_result(buffer.pop())
        elif buffer:
            taken.set_result(b"".join(buffer))
            buffer.clear()
            self._size = 0
            # A single part never pauses reading, so only this branch resumes it.
            protocol.resume_reading()
        elif self._eof:
            taken.set_result(b"")
        else:
            self._waiter = taken
        return taken  # type: ignore[no-any-return]


class _RestOfBody(aiohttp.StreamReader):
    """The reader of a parser that was made in the middle of a body: passes all on to the reader of the whole body."""

    __slots__ = ()

    begin_http_chunk_receiving = staticmethod(bool)  # type: ignore[assignment]
    end_http_chunk_receiving = staticmethod(bool)  # type: ignore[assignment]

    @property
    def _body(self) -> Any:
        handler: Any = self._protocol
        body = handler._payload  # noqa: SLF001
        # It is None once the connection was closed; then nobody reads.
        return aiohttp.EMPTY_PAYLOAD if body is None else body

    @override
    def feed_data(self, data: bytes, size: int = 0) -> bool:
        more: bool = self._body.feed_data(data)
        return more

    @override
    def feed_eof(self) -> None:
        self._body.feed_eof()

    @override
    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        self._body.set_exception(exc)


class Handler(ResponseHandler):
    """aiohttp's handler with a limit on headers. For bodies, aiohttp itself pauses reading when its buffer is full.

    A connection is reused only if the last request was sent whole and nothing followed its answer: such bytes would be
    taken for the next customer's answer.

    Attributes:
        in_use: whether an answer is awaited, or has not come whole.
        chunks: reads the body past the parser; None = the parser reads.
        listener: of the body that `chunks` reads; None = it has none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, room: memoryview) -> None:
        super().__init__(loop)
        # One head at a time.
        self._buffer: Any = FewItems()
        self.in_use = False
        self._used = False
        self._head_bytes: int | None = None
        self._whole_head = False
        self.chunks: ChunkDecoder | None = None
        self.listener: Take | None = None
        self._poll: select.poll | None = None
        self._room = room

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Only a BufferedProtocol decides how much the loop reads at once.
        transport.set_protocol(_SmallReads(self, self._room))

    @override
    def data_received(self, data: bytes) -> None:
        if self.chunks is not None:
            self.take_chunks(self.chunks, data)
            return
        if self._head_bytes is None:
            if self.in_use:
                ResponseHandler.data_received(self, data)
            elif data:
                self._refuse()
            return
        # In small parts: only between two calls can we see whether the headers have ended.
        while self._head_bytes is not None and data and self.exception() is None:
            end = data.find(_HEAD_END, 0, _HEAD_PART_BYTES)
            size = _HEAD_PART_BYTES if end < 0 else end + len(_HEAD_END)
            self._whole_head = end >= 0
            part, data = data[:size], data[size:]
            self._head_bytes += len(part)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.set_exception(EndlessHeadError())
                if self.transport is not None:
                    self.transport.abort()
                return
            super().data_received(part)
        if self._head_bytes is None and data:
            self.data_received(data)

    def take_chunks(self, chunks: ChunkDecoder, data: bytes) -> None:
        """Pass on bytes of a body, without the parser."""
        body: Any = self._payload
        try:
            # The body is None once the connection was closed.
            if body is not None and (plain := chunks.feed(data)):
                # Nothing follows a small read in this turn of the loop, so that no stream holds up the others.
                if self.listener is not None and len(data) <= MAX_OFFERED_BYTES and body.is_awaited():
                    plain = self.listener(plain)
                body.feed_data(plain)
        except ValueError:
            self.chunks = None
            if self.transport is not None:
                self.transport.abort()
            self.set_exception(HttpProcessingError())
            return
        if chunks.rest is not None:
            self.chunks = self.listener = None
            if chunks.rest == _BODY_END and body is not None:
                body.feed_eof()
            else:
                self._parse_rest(chunks.rest)

    def _parse_rest(self, rest: bytes) -> None:
        """Let aiohttp read what is unusual in a body: trailers, extensions, errors, or bytes after its end."""
        parser = self._parser = HttpResponseParser(
            self, self._loop, READ_BYTES, payload_exception=aiohttp.ClientPayloadError, auto_decompress=False
        )
        ((_, reader),), _, _ = parser.feed_data(_CHUNKED_HEAD)
        reader.__class__ = _RestOfBody
        ResponseHandler.data_received(self, rest)

    @override
    def pause_reading(self) -> None:
        if self.chunks is None:
            super().pause_reading()
        else:
            # Not the parser: it has no bytes to parse later, and would hold back the end of the body for good.
            self._reading_paused = True
            self._pause_transport_reading()

    @override
    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp calls it after each read and then parses an empty rest, a tenth of a chunk's cost.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @override
    def set_response_params(self, **params: Any) -> None:
        self._head_bytes = 0
        self.chunks = None
        self.in_use = self._used = True
        super().set_response_params(**params)

    @override
    def feed_data(self, data: Any, size: int = 0) -> None:
        message, body = data
        # In the same read as the end of the last answer.
        if not self.in_use:
            self._refuse()
            return
        # Interim responses (1xx) arrive here too; an endless series of them must keep counting.
        if message.code >= 200:
            self._head_bytes = None
            if type(body) is aiohttp.StreamReader:
                body = Body.of(body)
                # The parser stays before the first chunk until it gets one that is not plain.
                if message.chunked and self._whole_head and body.is_untouched():
                    self.chunks, self.listener = ChunkDecoder(), None
                    # The message keeps the whole head, 1.2 KiB with few headers, until the answer's end.
                    self._parser = None
            self.in_use = not body.is_eof()
        elif message.code == UPGRADE:
            self.force_close()
        super().feed_data(data, size)

    @override
    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        # aiohttp's parser forgets the body that it cannot read, so nobody else tells its reader.
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError())
        super().set_exception(exc, *cause)

    @override
    def is_connected(self) -> bool:
        # aiohttp asks this before it reuses a connection.
        return super().is_connected() and (self.in_use or (not self.should_close and self._is_idle()))

    @property
    @override
    def should_close(self) -> bool:
        return super().should_close or self._sends()

    @override
    def close(self) -> None:
        # `close` would first send what is buffered: to a peer that never reads, for ever.
        if self._sends():
            self.abort()
        else:
            super().close()

    def _sends(self) -> bool:
        transport = self.transport
        # Before the first request uvloop counts the end of TLS's handshake.
        return self._used and transport is not None and transport.get_write_buffer_size() > 0

    def _is_idle(self) -> bool:
        """Whether the system has nothing that was received, and room to send: TLS does not tell what it holds back."""
        if self._poll is None:
            connected: Any = None if self.transport is None else self.transport.get_extra_info("socket")
            if connected is None:
                return False
            # Kept: the handler has one connection, and asks only while that is open.
            self._poll = select.poll()
            self._poll.register(connected.fileno(), select.POLLIN | select.POLLOUT)
        return [event for _, event in self._poll.poll(0)] == [select.POLLOUT]

    def _refuse(self) -> None:
        """Close a connection whose server sends what nobody has asked for."""
        self.force_close()
        if self.transport is not None:
            self.transport.abort()
