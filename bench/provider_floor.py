"""The floor of reading a provider: a bare `asyncio.Protocol` that writes a fixed request and decodes each event."""

import asyncio
from typing import cast

from typing_extensions import override

from bench.bare_proxy import DECODER

END = b"0\r\n\r\n"
"""The last bytes of an answer of `bench.fake_provider`."""


class FloorConnection(asyncio.Protocol):
    """One connection to `bench.fake_provider`, one request at a time. It trusts the server in everything."""

    def __init__(self) -> None:
        self._events = 0
        self._rest = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        """Decode the events that have come."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            # A chunk's size stands before its event.
            start = event.find(b"data: {")
            if start >= 0 and DECODER.decode(event[start + 6 :]).choices:
                self._events += 1
        if self._rest.endswith(END):
            self._rest = b""
            self._done.set_result(self._events)

    async def ask(self, request: bytes) -> int:
        """How many events the answer had."""
        self._events = 0
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._done


class FloorPool:
    """As many connections as there are streams at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[FloorConnection] = []

    async def ask(self, request: bytes) -> int:
        """As `FloorConnection.ask`."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            return await connection.ask(request)
        finally:
            self._idle.append(connection)

    async def _connect(self) -> FloorConnection:
        _, connection = await asyncio.get_running_loop().create_connection(FloorConnection, "127.0.0.1", self._port)
        return connection

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.transport.close()


def write_request(port: int, body: bytes) -> bytes:
    """A whole request for an answer to `body`."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
