"""Many streams -> one socket: joins frames that are ready together, and cuts off a client that does not read."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from typing_extensions import override

from tg_gateway.dialects import Output, join_output
from tg_gateway.relay import Sink
from tg_schema import TgError
from tg_schema.errors import Cancelled, SlowConsumer

MAX_UNSENT_BYTES = 64 * 1024
"""Bytes of frames that are collected within a turn of the event loop before they are written."""


class BufferBudget:
    """The bytes that all streams of one socket hold while its client does not read.

    Args:
        limit: bytes.

    Attributes:
        total: bytes held now; never more than the limit after a call.
    """

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._limit = limit
        self._held: dict[SocketStream, int] = {}

    def hold(self, holder: "SocketStream", size: int) -> None:
        """Note a stream's bytes. Ends the streams that hold most, until the rest is within the limit."""
        self.total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.total > self._limit:
            largest = max(self._held, key=lambda holder: self._held[holder])
            # Subtract the bytes before calling `shed`, which drops them and would subtract them again.
            self.total -= self._held.pop(largest)
            largest.shed()


class SocketWriter:
    """The sending side of a WebSocket. Writing never waits.

    Args:
        request: the handshake.
        patience: seconds for which the client may read nothing of the waiting bytes, before its socket is cut.
        limit: bytes that all its streams together may hold for a client that does not read.
    """

    def __init__(self, request: web.Request, patience: float, limit: int) -> None:
        if request.transport is None:
            raise Cancelled("the client left")
        self._writer = request.writer
        self._transport = request.transport
        self._protocol = request.protocol
        self._patience = patience
        self.budget = BufferBudget(limit)
        self._frames: list[bytes] = []
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[bool] | None = None

    @property
    def full(self) -> bool:
        """Whether the client does not keep up."""
        return self._unsent > MAX_UNSENT_BYTES or self._protocol.writing_paused

    def write(self, frames: bytes) -> None:
        """Send whole frames, together with the others of this turn of the event loop."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames.append(frames)
        self._unsent += len(frames)

    def flush(self) -> None:
        """Send now."""
        frames, self._frames, self._unsent = self._frames, [], 0
        if frames and not self._transport.is_closing():
            self._transport.write(b"".join(frames))

    async def drain(self) -> None:
        """Return once the client has caught up.

        Raises:
            SlowConsumer: the client read nothing for too long; its socket is cut.
        """
        if self._draining is None or self._draining.done():
            # One task for all waiters: the server's own `drain` shares a future, which one waiter's cancellation
            # would cancel for the others too.
            self._draining = asyncio.create_task(self._drain())
        if not await asyncio.shield(self._draining):
            raise SlowConsumer("the client read nothing for too long")

    async def _drain(self) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                self.flush()
                await self._writer.drain()
        except (TimeoutError, ConnectionError):
            self._transport.abort()
            return False
        return True


class SocketStream(Sink):
    """One request's answers on a socket; exactly one of them is the last.

    Args:
        writer: the way to the client.
        fail: the frames that end a request which failed.

    Attributes:
        stop: called if the stream must end because its client does not read.
    """

    __slots__ = ("_ended", "_fail", "_writer", "stop")

    def __init__(self, writer: SocketWriter, fail: Callable[[TgError], Output]) -> None:
        self._writer = writer
        self._fail = fail
        self._ended = False
        self.stop: Callable[[], None] = ignore_stop

    @override
    def hold(self, size: int) -> None:
        # A stream that has ended may release what it holds, but must not hold more.
        if not self._ended or not size:
            self._writer.budget.hold(self, size)

    def shed(self) -> None:
        """End now, and drop the waiting bytes. Called once."""
        self.fail(SlowConsumer("the client reads this socket too slowly, and this stream holds most of what waits"))
        self.stop()

    async def deliver(self, frames: bytes) -> None:
        """Send a whole answer, once the client keeps up."""
        try:
            while self.full:
                self.hold(len(frames))
                await self.drain()
        finally:
            self.hold(0)
        self.send(frames, last=True)

    @override
    def send(self, data: Output, *, last: bool) -> None:
        if not self._ended:
            self._ended = last
            if data:
                self._writer.write(join_output(data))

    def fail(self, error: TgError) -> None:
        """End with an error, unless it has ended."""
        if not self._ended:
            self._ended = True
            self._writer.write(join_output(self._fail(error)))

    @property
    @override
    def full(self) -> bool:
        return self._writer.full

    @override
    async def drain(self) -> None:
        await self._writer.drain()


def ignore_stop() -> None:
    """The default of `stop`, for a stream with nothing to stop."""
