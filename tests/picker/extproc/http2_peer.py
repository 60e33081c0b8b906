"""A peer of the picker that sends the bytes that a test makes, right or wrong, over TCP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK = END_STREAM = 1
END_HEADERS = 4


def write_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


BEGINNING = PREFACE + write_frame(SETTINGS, 0, 0)


def opened(stream: int, path: str, flags: int = END_HEADERS) -> bytes:
    """HEADERS that begin a call."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, "content-type": "application/grpc", "te": "trailers"}
    return write_frame(HEADERS, flags, stream, b"".join(literal(name, value) for name, value in fields.items()))


def literal(name: str, value: str) -> bytes:
    """A header of less than 127 bytes each, in HPACK, that changes no table."""
    return bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


class Http2Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send it; that the server has left already is seen when reading."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def frame(self) -> tuple[int, int, bytes] | None:
        """Kind, flags and payload of the server's next frame; None = it has closed the connection."""
        try:
            head = await self._reader.readexactly(9)
            return head[3], head[4], await self._reader.readexactly(int.from_bytes(head[:3]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def closed(self) -> bytes:
        """What the last GOAWAY said, once the server has closed the connection."""
        said = b""
        while (frame := await self.frame()) is not None:
            if frame[0] == GOAWAY:
                said = frame[2]
        return said


@asynccontextmanager
async def connected(address: str, beginning: bytes = BEGINNING) -> AsyncIterator[Http2Peer]:
    """A connection on which this was sent."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    peer = Http2Peer(reader, writer)
    try:
        await peer.send(beginning)
        yield peer
    finally:
        writer.close()
