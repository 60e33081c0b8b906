"""A TCP proxy before several ports that cuts its connections: each at the next byte of a plan, then passes all on."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.fakes.stream_server import stream_server
from tg_base.runtime import running

_ID: Final = re.compile(rb'X-Stream-Id: ks-.*?\r\n\r\n|"stream":"ks-[^}]*\}', re.DOTALL)
"""A stream has begun, and its reader knows its id."""
_PORTION: Final = 64 * 1024


class CuttingProxy:
    """Between clients and the gateways of this machine.

    Args:
        choose: the port for the next connection.
        cuts: after how many bytes to the client a connection is cut; of one that begins a stream, after the stream's
            id. At the end of the plan nothing is cut any more.

    Attributes:
        url: where it listens.
        cut: how many connections were cut.
    """

    def __init__(self, choose: Callable[[], int], cuts: Iterator[int]) -> None:
        self.url = ""
        self.cut = 0
        self._choose = choose
        self._cuts = cuts

    @classmethod
    @asynccontextmanager
    async def before(cls, choose: Callable[[], int], cuts: Iterator[int]) -> AsyncIterator["CuttingProxy"]:
        """Listen on a free loopback port."""
        proxy = cls(choose, cuts)
        async with stream_server(proxy._serve) as port:
            proxy.url = f"http://127.0.0.1:{port}/"
            yield proxy

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(_PORTION)
        there, back = await asyncio.open_connection("127.0.0.1", self._choose())
        back.write(head)
        try:
            async with running(_pass_on(reader, back)):
                await self._answer(there, writer, begins=not head.startswith(b"GET /v1/streams/"))
        finally:
            back.transport.abort()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, *, begins: bool) -> None:
        passed, limit, told = b"", None if begins else next(self._cuts, None), not begins
        while data := await there.read(_PORTION):
            passed += data
            if not told and (found := _ID.search(passed)):
                cut, told = next(self._cuts, None), True
                limit = None if cut is None else found.end() + cut
            if limit is not None and len(passed) >= limit:
                writer.write(data[: len(data) - (len(passed) - limit)])
                with suppress(ConnectionError):
                    await writer.drain()
                self.cut += 1
                writer.close()
                return
            writer.write(data)
            await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_PORTION):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
