"""Compressed body -> its bytes: inflated in steps, within the limit, while other requests have their turns."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

from tg_schema.errors import BadRequest, TooLarge

INFLATE_STEP_BYTES = 64 * 1024
"""Maximum input, and maximum output, in bytes of one step; between steps the event loop has its turn."""
ENCODING_BROKEN: Final = "the body's transfer or content encoding is broken"
_GZIP: Final = 16 + zlib.MAX_WBITS
WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
"""The encodings that are known; their values are zlib's `wbits`."""


async def inflate(packed: bytes, encoding: str, limit: int, count: Callable[[int], None] | None) -> bytes:
    """Inflate a gzip or deflate body in steps, between which the event loop has its turn; `count` is told its size.

    Raises:
        TooLarge: it inflates to more bytes than the limit; at most one step beyond it is inflated.
        BadRequest: it ends too early.
        zlib.error: it is not of this encoding.
    """
    # No body is a valid body, whatever the header says; zlib would take it for one that ends too early.
    if not packed:
        return packed
    window = WINDOWS[encoding]
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
                raise too_large(limit)
            if count is not None:
                count(len(body))
            await asyncio.sleep(0)
    if not decoder.eof:
        raise BadRequest(ENCODING_BROKEN)
    return bytes(body)


def too_large(limit: int) -> TooLarge:
    """The error for a body above this limit, compressed or inflated."""
    return TooLarge(
        f"the body may have at most {limit} bytes: send less, or raise body_limit and large_body_limit of [gateway]"
    )
