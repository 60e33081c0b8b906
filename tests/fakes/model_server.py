"""A model server's page of metrics over a loopback socket, and every way in which it can fail to come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Self

from tests.fakes.model_server_pages import Load, vllm_page
from tests.fakes.stream_server import stream_server


class PageFault(Enum):
    """What is wrong with the next looks."""

    NONE = auto()
    STATUS = auto()
    """Status 500."""
    REDIRECT = auto()
    SILENCE = auto()
    """The request is taken, and nothing comes."""
    STALL = auto()
    """Half of the page comes, and nothing more."""
    ABORT = auto()
    """Half of the page comes, and the end of the connection."""
    ENDLESS = auto()
    NONSENSE = auto()
    """Bytes that are no text."""
    LIES = auto()
    """A negative queue."""
    EMPTY = auto()
    HEADERS = auto()
    """Headers without an end."""


_PREPARED = {
    PageFault.STATUS: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\noops\n",
    PageFault.REDIRECT: b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
}
_BODIES = {
    PageFault.NONSENSE: bytes(range(256)) * 16,
    PageFault.LIES: vllm_page(Load(queued=-3.0)),
    PageFault.EMPTY: b"",
}


class ModelServer:
    """Attributes:
    address: "127.0.0.1:PORT".
    page: what it prints.
    fault: what is wrong.
    looks: requests so far.
    connections: opened so far.
    """

    def __init__(self) -> None:
        self.address = ""
        self.page = vllm_page(Load())
        self.fault = PageFault.NONE
        self.looks = 0
        self.connections = 0
        self._looked = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        async with stream_server(server._serve) as port:
            server.address = f"127.0.0.1:{port}"
            yield server

    async def looked(self, more: int = 1) -> None:
        """Wait until it was asked so many times more."""
        async with asyncio.timeout(30), self._looked:
            goal = self.looks + more
            await self._looked.wait_for(lambda: self.looks >= goal)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        going_on = True
        while going_on:
            asked = await reader.readuntil(b"\r\n\r\n")
            assert asked.startswith(b"GET /metrics HTTP/1.1\r\n")
            async with self._looked:
                self.looks += 1
                self._looked.notify_all()
            going_on = await self._answer(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        fault = self.fault
        body = _BODIES.get(fault, self.page)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        if fault in _PREPARED:
            writer.write(_PREPARED[fault])
        elif fault is PageFault.SILENCE:
            await asyncio.Event().wait()
        elif fault in {PageFault.STALL, PageFault.ABORT}:
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
            await writer.drain()
            if fault is PageFault.STALL:
                await asyncio.Event().wait()
            return False
        elif fault in {PageFault.ENDLESS, PageFault.HEADERS}:
            writer.write(head + (b"" if fault is PageFault.HEADERS else b"\r\n"))
            while True:
                writer.write(b"X-Filler: # no number in it\n" * 512)
                await writer.drain()
        else:
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        return True
