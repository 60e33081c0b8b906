"""What never ends, over a loopback socket: bodies without content, and interim responses without an answer."""

import asyncio
import zlib

from aiohttp import web

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n" * 256
MARKS = (
    b'finish_reason":"',
    b'finish_reason": "',
    b"message_delta",
    b"messageStop",
    b"finishReason",
    b"message-end",
    b"done_reason",
)
"""What the terminal marker of each wire has in it, among the events after the text."""

_GZIP = 31
_INFLATED = 4 * 1024 * 1024
_ROOM = 1024 * 1024


async def pour(response: web.StreamResponse, block: bytes) -> None:
    """Write the same bytes for ever, as fast as they are read."""
    while True:
        await response.write(block)
        await asyncio.sleep(0)


async def pour_compressed(response: web.StreamResponse, block: bytes) -> None:
    """The same as one gzip stream, every write of which inflates to 4 MB."""
    squeezer = zlib.compressobj(9, wbits=_GZIP)
    filler = block * (_INFLATED // len(block))
    await response.write(squeezer.compress(filler) + squeezer.flush(zlib.Z_FULL_FLUSH))
    await pour(response, squeezer.compress(filler) + squeezer.flush(zlib.Z_FULL_FLUSH))


async def pour_interim(request: web.Request) -> None:
    """Interim responses, until the client has left."""
    transport = request.transport
    while transport is not None and not transport.is_closing():
        if transport.get_write_buffer_size() < _ROOM:
            transport.write(CONTINUE)
        await asyncio.sleep(0)
