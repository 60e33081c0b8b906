"""HTTP request -> the bytes of its body, as a dialect parses them: read and inflated within the limits."""

import asyncio
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from aiohttp import HttpVersion11, web

from tg_base.runtime import FewItems
from tg_gateway.access import Limits
from tg_schema.errors import BadRequest, TooLarge

INFLATE_STEP_BYTES = 64 * 1024
"""Maximum bytes that are inflated, and that are fed to be inflated, before the event loop has its turn."""

_ENCODING_BROKEN: Final = "the body's transfer or content encoding is broken"
_GZIP: Final = 16 + zlib.MAX_WBITS
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class BodyReader:
    """Reads the bodies of requests that have passed the checks: nothing is asked for or inflated before.

    Args:
        limit: maximum bytes of a body, as it comes and inflated.
        limits: how long a body may take.
        count: is told how many bytes a body has; what it raises refuses the request.
    """

    def __init__(self, limit: int, limits: Limits, count: Callable[[int], None] | None = None) -> None:
        self._limit = limit
        self._count = count or _ignore
        self._limits = limits

    async def read(self, request: web.Request) -> bytes:
        """The whole body, inflated.

        Raises:
            RateLimited: its key has too many large bodies already.
            TooLarge: it has more bytes than the limit.
            BadRequest: its transfer or content encoding is broken.
            web.HTTPException: an expectation or encoding that we do not know, or a body that does not come in time.
        """
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", *_WINDOWS):
            raise web.HTTPUnsupportedMediaType(text="the body's Content-Encoding must be gzip, deflate or identity")
        # The server has refused what is no number of 64 bits, but for zeros before it, of which `int` takes 4,300.
        announced = int(request.headers.get("Content-Length", "").lstrip("0") or 0)
        if announced > self._limit:
            raise _too_large(self._limit)
        self._count(announced)
        await _meet_expectation(request)
        # Nearly all bodies have come with their heads: no timer for them.
        waits = not request.content.is_eof() or encoding in _WINDOWS
        try:
            async with asyncio.timeout(self._limits.body) if waits else nullcontext():
                body = await self._receive(request)
                return await inflate(body, encoding, self._limit, self._count) if encoding in _WINDOWS else body
        except (web.RequestPayloadError, zlib.error):
            raise BadRequest(_ENCODING_BROKEN) from None
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come within {self._limits.body:g} s") from None

    async def _receive(self, request: web.Request) -> bytes:
        """The body as it comes; not the server's own reading, whose one limit is that of all mounts."""
        pieces, size = list[bytes](), 0
        while piece := await request.content.readany():
            size += len(piece)
            if size > self._limit:
                raise _too_large(self._limit)
            self._count(size)
            pieces.append(piece)
        # Nothing more comes, and an empty deque would stay as long as the answer takes.
        request.content._buffer = FewItems()  # type: ignore[assignment]  # noqa: SLF001 - there is no public way
        return b"".join(pieces)


async def defer_expectation(request: web.Request) -> None:
    """What the server calls for an `Expect` header before any check: `BodyReader` meets it after them."""


async def _meet_expectation(request: web.Request) -> None:
    """Ask for a body that its client holds back (RFC 9110, section 10.1.1)."""
    expected = request.headers.get("Expect", "").lower()
    if not expected or request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise web.HTTPExpectationFailed(text="the header Expect may only be 100-continue")
    await request.writer.write(_CONTINUE)
    # The server counts these bytes as the beginning of its answer.
    request.writer.output_size = 0


async def inflate(packed: bytes, encoding: str, limit: int, count: Callable[[int], None]) -> bytes:
    """Inflate a gzip or deflate body in steps, between which the event loop has its turn; `count` is told its size.

    Raises:
        TooLarge: it inflates to more bytes than the limit; at most one step beyond it is inflated.
        BadRequest: it ends too early.
        zlib.error: it is not of this encoding.
    """
    # No body is a valid body, whatever the header says; zlib would take it for one that ends too early.
    if not packed:
        return packed
    window = _WINDOWS[encoding]
    # Many clients send deflate without the header of RFC 1950, whose first byte always ends with 8.
    window = -window if encoding == "deflate" and packed[0] & 0xF != 8 else window
    decoder, body = zlib.decompressobj(window), bytearray()
    for start in range(0, len(packed), INFLATE_STEP_BYTES):
        rest, made = packed[start : start + INFLATE_STEP_BYTES], b""
        # A step that is full may have left some in the decoder.
        while rest or len(made) == INFLATE_STEP_BYTES:
            if decoder.eof and rest:
                # A gzip body may have several members (RFC 1952, section 2.2).
                decoder = zlib.decompressobj(window)
            made = decoder.decompress(rest, INFLATE_STEP_BYTES)
            rest = decoder.unused_data or decoder.unconsumed_tail
            body += made
            if len(body) > limit:
                raise _too_large(limit)
            count(len(body))
            await asyncio.sleep(0)
    if not decoder.eof:
        raise BadRequest(_ENCODING_BROKEN)
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body may have at most {limit} bytes: send less, or raise body_limit and large_body_limit of [gateway]"
    )


def _ignore(size: int) -> None:
    """Nobody counts."""
