"""Flow -> gateway: many concurrent streams on one WebSocket, identified by their ids."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Self

import msgspec
from typing_extensions import override

from tg_client.transport.address import Address
from tg_client.transport.deadline import Deadline
from tg_client.transport.errors import TOKEN_NEEDED, make_incomplete
from tg_client.transport.position import Position
from tg_client.transport.records import bytes_of, records_of
from tg_schema import Error, ServiceSpec, TgError, decode
from tg_schema.errors import BadRequest, PeerError, ProtocolError, SlowConsumer, Unauthorized
from tg_schema.service_spec import Req, Resp

if TYPE_CHECKING:
    from tg_client.transport.websocket_connection import WebSocketConnection

SOCKET_PATH = "api/v1/socket"
"""Where the WebSocket is, below the gateway's base."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Largest frame from the gateway."""
GREETING_TIMEOUT_SECONDS = 10.0
"""Timeout of the connection, and of the answer to the token."""
HEARTBEAT_SECONDS = 20.0
"""Seconds between pings; a gateway that answers none for half of that is considered dead."""
_CANCEL_SECONDS = 1.0
"""Timeout of sending a cancel. It is written at once, but a slow network may still have earlier frames to send.

A request has no such limit: a large one may take long on a slow network, and its answer's timeout covers it.
"""


MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of records buffered for a slow reader. Only the stream that exceeds it ends with SlowConsumer."""


class WebSocketStream(AsyncIterator[Resp], Generic[Resp]):
    """Iterate to read. Buffered records are joined: a slow reader gets fewer and larger ones.

    Attributes:
        over: whether the gateway will send no more.
        position: what the reader has received.
    """

    def __init__(self, kind: type[Resp], clock: Deadline, position: Position) -> None:
        self.over = False
        self.position = position
        self._kind = kind
        self._clock = clock
        self._frames: deque[bytes] = deque()
        self._size = self._joined = 0
        self._records: deque[Resp] = deque()
        self._error: TgError | None = None
        self._read_last = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Add the next record, which has arrived."""
        self._size += len(data)
        # A single record is accepted at any size; the largest frame bounds it.
        if self._size > MAX_BUFFERED_BYTES and self._frames:
            self.fail(SlowConsumer("the answer was not read as fast as it arrived"))
        elif self._error is None:
            self._frames.append(data)
            self._news.set()

    def fail(self, error: TgError) -> None:
        """End the stream: the reader gets the buffered records, then the error. Ignored after the last record."""
        if self._error is None:
            self._error = error
            self._news.set()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Resp:
        while not self._records:
            if self._frames:
                self._join_waiting()
            elif self._read_last:
                raise StopAsyncIteration
            elif self._error is not None:
                raise self._error
            else:
                self._news.clear()
                await self._clock.within(self._news.wait())
        self._clock.hear()
        record = self._records.popleft()
        if not self._records:
            self.position.after += self._joined
        return record

    def _join_waiting(self) -> None:
        frames, self._frames, self._size = self._frames, deque(), 0
        self._joined = len(frames)
        records: list[Resp] = []
        try:
            for frame in frames:
                records.extend(records_of(self._kind, frame))
        except TgError as error:
            self._error = error
        self._read_last = bool(records) and records[-1].last
        self.position.over |= self._read_last
        self._records.extend(self._kind.join(records))


class _Frame(msgspec.Struct, frozen=True):
    """Any frame from the gateway."""

    id: str | None = None
    stream: str | None = None
    offset: int | None = None
    response: msgspec.Raw = msgspec.Raw()
    error: Error | str | None = None
    complete: bool = False
    type: str | None = None


class WebSocketTransport:
    """The WebSocket transport, created by `open_socket`. Leaving a stream early sends its cancel."""

    def __init__(self, address: Address, socket: "WebSocketConnection") -> None:
        self._base = address.base
        self._socket = socket
        self._streams: dict[str, WebSocketStream[Any]] = {}
        self._ids = count(1)
        self._error: TgError = make_incomplete(address.base)
        self.lost = False

    @asynccontextmanager
    async def stream(
        self, flow: str | None, spec: ServiceSpec[Req, Resp], request: Req, clock: Deadline, position: Position
    ) -> AsyncIterator[AsyncIterator[Resp]]:
        """See `Transport`."""
        if self.lost:
            raise self._error
        position.begin()
        stream = WebSocketStream(spec.response, clock, position)
        name = f"req-{next(self._ids)}"
        self._streams[name] = stream
        try:
            asked = {"id": name, "service": spec.name, "flow": flow, "request": request}
            await clock.within(self._send(asked | ({} if position.keep is None else {"keep": position.keep})))
            yield stream
        finally:
            del self._streams[name]
            if not stream.over:
                position.over = await self._cancel(name)

    async def greet(self, token: str | None) -> None:
        """Send the token.

        Raises:
            Unauthorized: the gateway rejects it.
        """
        await self._send({"token": token or "", "type": "auth"})
        greeting = await self._socket.receive()
        if greeting is None:
            raise ProtocolError(f"{self._base} closed the socket instead of answering; is it a Tokengrid gateway?")
        if _frame_of(greeting).type != "auth-ok":
            raise Unauthorized(f"{self._base} {TOKEN_NEEDED}")

    async def read(self) -> None:
        """Distribute the frames until the socket or this task ends; then every open stream fails."""
        try:
            async for frame in self._socket.frames():
                self._take(_frame_of(frame))
        except TgError as error:
            self._error = error
        finally:
            self.lost = True
            for stream in self._streams.values():
                stream.over = True
                stream.fail(self._error)

    def _take(self, frame: _Frame) -> None:
        stream = self._streams.get(frame.id or "")
        # The stream was left: frames that the gateway sent before it read the cancel still arrive.
        if stream is None:
            return
        stream.over = frame.complete
        if frame.stream is not None:
            stream.position.stream = frame.stream
        if frame.error is not None and frame.offset is not None:
            # An error that is no kept record concerns only this reader.
            stream.position.over = True
        if isinstance(frame.error, Error):
            stream.fail(TgError.of(frame.error))
        elif frame.error is not None:
            stream.fail(PeerError(frame.error))
        elif frame.response:
            stream.put(bytes(frame.response))
        if frame.complete:
            stream.fail(make_incomplete(self._base))

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._socket.send(bytes_of(frame))

    async def _cancel(self, name: str) -> bool:
        """Send a cancel. Returns whether it was sent."""
        with suppress(TgError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._send({"id": name, "cancel": True})
            return True
        return False


def _frame_of(data: str | bytes) -> _Frame:
    try:
        return decode(_Frame, data)
    except BadRequest:
        raise ProtocolError("the gateway sent a frame that is not part of its protocol") from None


@asynccontextmanager
async def open_socket(address: Address, token: str | None) -> AsyncIterator[WebSocketTransport]:
    """Connect, send the token, and read until the block is left.

    Raises:
        TgError: no gateway or WebSocket answers there, or the token is not valid.
    """
    # Imported only for a socket: no other call needs aiohttp.
    from tg_client.transport.websocket_connection import open_websocket

    clock = Deadline(GREETING_TIMEOUT_SECONDS)
    async with AsyncExitStack() as stack:
        opening = open_websocket(
            address.base, SOCKET_PATH, token, max_frame=MAX_FRAME_BYTES, heartbeat=HEARTBEAT_SECONDS
        )
        socket = await clock.within(stack.enter_async_context(opening))
        door = WebSocketTransport(address, socket)
        await clock.within(door.greet(token))
        # Start it only now: the greeting reads the socket itself, and two concurrent readers are an error.
        reader = asyncio.create_task(door.read(), name="socket")
        try:
            yield door
        finally:
            reader.cancel()
            await asyncio.wait([reader])
