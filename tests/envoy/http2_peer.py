"""A client that sends the frames that a test makes, right or wrong, to a `GrpcServer` over TCP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import hpack

from tg_gateway.envoy.grpc_call import GrpcCall
from tg_gateway.envoy.grpc_server import GrpcServer, serve_grpc
from tg_gateway.envoy.http2_frames import (
    END_HEADERS,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PREFACE,
    SETTINGS,
    Frame,
    write_frame,
)

ECHO = "/test.Echo/Echo"
MAX_MESSAGE = 4 * 1024 * 1024
BEGINNING = PREFACE + write_frame(SETTINGS, 0, 0)


async def echo(call: GrpcCall) -> None:
    """Send each message back."""
    while (message := await call.read()) is not None:
        await call.send(message)


def call_headers(path: str = ECHO, **more: str) -> bytes:
    """A request's block, all of it literal: it changes no table and may be sent again and again."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, "content-type": "application/grpc", **more}
    return b"".join(literal(name, value) for name, value in fields.items())


def literal(name: str, value: str) -> bytes:
    """A header of less than 127 bytes each, in HPACK."""
    return bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


def opened(stream: int, path: str = ECHO, flags: int = END_HEADERS) -> bytes:
    """HEADERS that begin a call."""
    return write_frame(HEADERS, flags, stream, call_headers(path))


def message(body: bytes) -> bytes:
    """With gRPC's prefix."""
    return b"\0" + len(body).to_bytes(4) + body


class Http2Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = hpack.Decoder()

    async def send(self, data: bytes) -> None:
        """Send it; that the server has left already is seen when reading."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def frame(self) -> Frame | None:
        """The server's next frame; None = it has closed the connection."""
        try:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return head[3], head[4], int.from_bytes(head[5:]) & MAX_WINDOW, payload

    async def next(self, kind: int) -> Frame:
        """The next frame of that kind."""
        while (frame := await self.frame()) is not None:
            if frame[0] == kind:
                return frame
            assert frame[0] != GOAWAY, frame
        raise AssertionError("the server has closed the connection")

    async def goaway(self) -> int:
        """The code of the GOAWAY with which the server ends the connection, which it then closes."""
        code = None
        while (frame := await self.frame()) is not None:
            if frame[0] == GOAWAY:
                code = int.from_bytes(frame[3][4:8])
        assert code is not None
        return code

    def fields(self, frame: Frame) -> dict[str, str]:
        """Of a HEADERS frame, by a decoder that is not ours."""
        return {str(name): str(value) for name, value in self._decoder.decode(frame[3])}


@asynccontextmanager
async def echo_server(keepalive: float = 60.0, drain: float = 0.0) -> AsyncIterator[tuple[GrpcServer, str]]:
    """A server that sends messages back, and its address."""
    server = GrpcServer({ECHO: echo}, MAX_MESSAGE)
    async with serve_grpc(server, "127.0.0.1:0", drain, keepalive) as address:
        yield server, address


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
