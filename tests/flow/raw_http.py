"""Bytes to and from a listening server, for what no well-behaved client would send or show."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PATIENCE_SECONDS = 20.0


class RawConnection:
    """A connection that says exactly what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, path: str, body: bytes, version: str = "1.1", headers: str = "") -> None:
        head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.writer.write(head.encode() + body)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), PATIENCE_SECONDS)

    async def rest(self) -> bytes:
        """Everything until the server closes, or refuses what is sent behind its close."""
        parts = bytearray()
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while part := await self.reader.read(65536):
                    parts += part
        return bytes(parts)


@asynccontextmanager
async def raw_connection(address: tuple[str, int]) -> AsyncIterator[RawConnection]:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, address)
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()
