"""A server at the edge of the SDK's world: answers with exactly the bytes that a test wants, however wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes.stream_server import stream_server

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class GatewayWire:
    """What it saw: each request's head and body, and when a client has left."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def gateway_wire(answer: Answer) -> AsyncIterator[GatewayWire]:
    """Listen on a free loopback port: each request is read whole and answered by `answer`, then closed."""
    wire = GatewayWire()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            wire.requests.append(head + await reader.readexactly(int(size.partition(b":")[2])))
            await answer(reader, writer)
        except ConnectionError:
            wire.left.set()

    async with stream_server(serve) as port:
        wire.url = f"http://127.0.0.1:{port}/"
        yield wire


def bytes_of(*parts: bytes) -> Answer:
    """An answer that sends these parts, each in a write of its own, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return answer


def in_turn(*answers: bytes) -> Answer:
    """The first one for the first request, and so on; the last one for all further ones. b"" closes the connection."""
    left = list(answers)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return answer


def response(status: str, body: bytes, *headers: str) -> bytes:
    """A whole response."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


WELL = EVENTS + chunk(b'data: {"response":"well","text":"well","end_of_stream":true,"end_of_dialog":true}\n\n') + END
"""A streamed answer of any service."""
