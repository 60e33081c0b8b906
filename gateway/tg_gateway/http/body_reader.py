"""Connection -> a request's body: read within its limits, and inflated while other requests have their turns."""

import asyncio
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from aiohttp import HttpVersion11, web

from tg_gateway.access import Limits
from tg_schema.errors import BadRequest, TooLarge

INFLATE_STEP_BYTES = 64 * 1024
"""Maximum input, and maximum output, in bytes of one step; between steps the event loop has its turn."""
_ENCODING_BROKEN: Final = "the body's transfer or content encoding is broken"
_GZIP: Final = 16 + zlib.MAX_WBITS
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
"""The known encodings, each with zlib's `wbits` for it."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyReader:
    """Reads the bodies of admitted requests: before the checks no body is requested (`Expect`) or inflated.

    Args:
        limit: maximum bytes of a body, both as received and inflated.
        limits: how long a body may take.
        count: called with the body's size in bytes; an error that it raises refuses the request.
    """

    def __init__(self, limit: int, limits: Limits, count: Callable[[int], None] | None = None) -> None:
        self._limit = limit
        self._count = count
        self._limits = limits

    async def read(self, request: web.Request) -> bytes:
        """The whole body, inflated.

        Raises:
            RateLimited: its key has too many large bodies already.
            TooLarge: it has more bytes than the limit.
            BadRequest: its transfer or content encoding is broken.
            web.HTTPException: an unknown expectation or encoding, or a body that does not come in time.
        """
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", *_WINDOWS):
            raise web.HTTPUnsupportedMediaType(text="the body's Content-Encoding must be gzip, deflate or identity")
        # The server has refused numbers over 64 bits, but not leading zeros, of which `int` accepts only 4,300.
        announced = int(request.headers.get("Content-Length", "").lstrip("0") or 0)
        if announced > self._limit:
            raise _too_large(self._limit)
        if self._count is not None:
            self._count(announced)
        if request.headers.get("Expect"):
            await _meet_expectation(request)
        # Nearly all bodies arrive with their heads, so set no timer for them.
        waits = not request.content.is_eof() or encoding in _WINDOWS
        pieces, size = list[bytes](), 0
        try:
            async with asyncio.timeout(self._limits.body) if waits else nullcontext():
                # Not the server's own reading, which has one limit for all mounts.
                while piece := await request.content.readany():
                    size += len(piece)
                    if size > self._limit:
                        raise _too_large(self._limit)
                    if self._count is not None:
                        self._count(size)
                    pieces.append(piece)
                body = b"".join(pieces)
                return await inflate(body, encoding, self._limit, self._count) if encoding in _WINDOWS else body
        except (web.RequestPayloadError, zlib.error):
            raise BadRequest(_ENCODING_BROKEN) from None
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come within {self._limits.body:g} s") from None


async def inflate(packed: bytes, encoding: str, limit: int, count: Callable[[int], None] | None) -> bytes:
    """Inflate a gzip or deflate body in steps, between which the event loop runs; `count` is called with its size.

    Raises:
        TooLarge: it inflates to more bytes than the limit; at most one step beyond it is inflated.
        BadRequest: the body ends too early.
        zlib.error: it is not of this encoding.
    """
    # An empty body is valid, whatever the header says; zlib would report that it ends too early.
    if not packed:
        return packed
    window = _WINDOWS[encoding]
    # Many clients send deflate without the header of RFC 1950, whose first byte always ends with 8.
    window = -window if encoding == "deflate" and packed[0] & 0xF != 8 else window
    decoder, body = zlib.decompressobj(window), bytearray()
    for start in range(0, len(packed), INFLATE_STEP_BYTES):
        rest, made = packed[start : start + INFLATE_STEP_BYTES], b""
        # A full step may have left data in the decoder.
        while rest or len(made) == INFLATE_STEP_BYTES:
            if decoder.eof and rest:
                # A gzip body may have several members (RFC 1952, section 2.2).
                decoder = zlib.decompressobj(window)
            made = decoder.decompress(rest, INFLATE_STEP_BYTES)
            rest = decoder.unused_data or decoder.unconsumed_tail
            body += made
            if len(body) > limit:
                raise _too_large(limit)
            if count is not None:
                count(len(body))
            await asyncio.sleep(0)
    if not decoder.eof:
        raise BadRequest(_ENCODING_BROKEN)
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    """The error for a body above this limit, compressed or inflated."""
    return TooLarge(
        f"the body may have at most {limit} bytes: send less, or raise body_limit and large_body_limit of [gateway]"
    )


async def _meet_expectation(request: web.Request) -> None:
    """Ask for a body that its client holds back (RFC 9110, section 10.1.1)."""
    expected = request.headers.get("Expect", "").lower()
    if request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise web.HTTPExpectationFailed(text="the header Expect may only be 100-continue")
    await request.writer.write(_CONTINUE)
    # The server counts these bytes as sent, as if the answer had begun.
    request.writer.output_size = 0
