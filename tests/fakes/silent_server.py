"""A server that takes a request and never answers; for any wire over TCP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SilentServer:
    """On a free port of the loopback interface.

    Attributes:
        url: "http://127.0.0.1:PORT".
        asked: set when the first bytes of a request have come.
        left: set when the client has closed its socket.
        exchanges: none, because no request is read.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["SilentServer"]:
        """Serve until left."""
        silent = cls()
        server = await asyncio.start_server(silent._listen, "127.0.0.1", 0)
        async with server:
            silent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield silent

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                self.asked.set()
        except ConnectionResetError:
            pass
        self.left.set()
        writer.close()
