"""A TCP proxy that can be away, or fall silent while every socket stays open: it swallows bytes, or holds them back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Way = Literal["out", "in"]
"""From who connects to the server, or back."""
WAYS: tuple[Way, ...] = ("out", "in")

PORTION = 64 * 1024


class SwallowingProxy:
    """Between clients and one port of this machine. What was swallowed is gone for good, so that on healing every
    connection of before is cut, as a network that comes back does with connections whose bytes it has lost.

    Attributes:
        connections: those of clients that are open now.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.swallowed = 0
        self.connections = 0
        self._target = port
        self._swallowing = False
        self._refusing = False
        self._passing = {way: asyncio.Event() for way in WAYS}
        self.release()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def before(cls, port: int) -> AsyncIterator["SwallowingProxy"]:
        """Listen on a free loopback port."""
        proxy = cls(port)
        await proxy._listen()
        try:
            yield proxy
        finally:
            proxy._server.close()
            proxy.release()
            proxy._cut()
            if proxy._tasks:
                await asyncio.wait(proxy._tasks)

    def leave(self) -> None:
        """From now on every connection is refused, and those of before are cut: as if the server had been killed."""
        self._server.close()
        self._cut()

    async def come_back(self, *, refusing: bool = False) -> None:
        """Listen, on the port of before; `refusing`: who connects is cut at once, as before a server that boots."""
        self._server.close()
        self._refusing = refusing
        await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)  # noqa: TID251 - it cuts them
        self.port = self._server.sockets[0].getsockname()[1]

    def swallow(self) -> None:
        """From now on nothing passes, and nobody is told; who connects is accepted and hears nothing."""
        self._swallowing = True

    def heal(self) -> None:
        """Whatever is connected from now on works."""
        self._swallowing = False
        self._cut()

    def hold(self, *ways: Way) -> None:
        """From now on nothing passes on these ways (none given: on both), and nothing is lost."""
        for way in ways or WAYS:
            self._passing[way].clear()

    def release(self) -> None:
        """What was held back passes now, late and in order."""
        for passing in self._passing.values():
            passing.set()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back}
        self.connections += 1
        both: tuple[tuple[Way, asyncio.StreamReader, asyncio.StreamWriter], ...]
        both = ("out", reader, back), ("in", there, writer)
        for way, source, target in both:
            task = asyncio.create_task(self._pass_on(source, target, self._passing[way]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if way == "out":
                task.add_done_callback(self._on_closed)

    def _on_closed(self, _: "asyncio.Task[None]") -> None:
        self.connections -= 1

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, passing: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(PORTION):
                await passing.wait()
                if self._swallowing:
                    self.swallowed += len(data)
                    continue
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            if not self._swallowing:
                target.close()
                self._writers.discard(target)
