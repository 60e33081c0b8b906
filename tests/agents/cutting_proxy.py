"""Agent -> proxy -> gateway: one answer of a model is cut after some bytes, as by a network that breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.fakes.stream_server import stream_server
from tg_base.runtime import running


class CuttingProxy:
    """Passes bytes on, both ways.

    Args:
        port: the gateway's.
        path: of the requests whose answers may be cut.
        after: bytes of the first such answer after which both its connections are broken.

    Attributes:
        url: where it listens.
        cut: how many answers it has cut.
    """

    def __init__(self, port: int, path: bytes, after: int) -> None:
        self._port = port
        self._path = path
        self._after = after
        self.url = ""
        self.cut = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["CuttingProxy"]:
        """Serve on a free loopback port."""
        async with stream_server(self._serve) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked, answered = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.Event()
        try:
            async with running(self._answer(asked, writer, asking)):
                while piece := await reader.read(65536):
                    if piece.startswith(b"POST " + self._path):
                        asking.set()
                    answered.write(piece)
                    await answered.drain()
        finally:
            for each in (answered, writer):
                each.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: asyncio.Event) -> None:
        left = self._after
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                if asking.is_set() and not self.cut:
                    piece, left = piece[:left], left - len(piece)
                writer.write(piece)
                await writer.drain()
                if left <= 0 and not self.cut:
                    self.cut += 1
                    break
        # After what was written has left: what comes behind is lost.
        writer.close()
