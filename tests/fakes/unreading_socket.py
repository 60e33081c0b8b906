"""A WebSocket at the edge of the SDK's world that greets, and then reads nothing, like a process that is suspended."""

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha1

from tests.fakes.socket_wire import GREETED
from tests.fakes.stream_server import stream_server

MAX_UNREAD_BYTES = 4096
"""What its system takes in its place; it may double that."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455, section 1.3."""
_TEXT = 0x81
"""The first byte of a whole frame of text (section 5.2)."""


@asynccontextmanager
async def unreading_socket() -> AsyncIterator[str]:
    """The URL, while the block runs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined] # typeshed has no read transport here
        writer.write(_handshake(head) + bytes((_TEXT, len(GREETED))) + GREETED.encode())
        await asyncio.Event().wait()

    listening = socket.create_server(("127.0.0.1", 0))
    # Before it accepts: a connection inherits this, and announces it with its first packet.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MAX_UNREAD_BYTES)
    async with stream_server(serve, sock=listening) as port:
        yield f"http://127.0.0.1:{port}/"


def _handshake(head: bytes) -> bytes:
    found = re.search(rb"(?i)sec-websocket-key: *([^\r]+)", head)
    assert found is not None
    accept = b64encode(sha1(found[1] + _GUID, usedforsecurity=False).digest())
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return upgrade + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
