"""A server that takes a request and never answers; for any wire over TCP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.plan import Exchange, Plan
from tests.fakes.stream_server import stream_server


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
        self.exchanges: list[Exchange] = []

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["SilentServer"]:
        """Serve until left."""
        silent = cls()
        async with stream_server(silent._listen) as port:
            silent.url = f"http://127.0.0.1:{port}"
            yield silent

    def play(self, *plans: Plan) -> None:
        """Change nothing: whatever the plan, it stays silent."""

    async def exchange(self, number: int) -> Exchange:
        """None comes.

        Raises:
            IndexError: always.
        """
        return self.exchanges[number]

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                self.asked.set()
        except ConnectionResetError:
            pass
        self.left.set()
