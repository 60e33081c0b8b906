"""JSON -> bytes of a protocol: server-sent events (WHATWG HTML, section 9.2), lines, WebSocket frames (RFC 6455, 5.2).

The JSON that comes in has its control characters escaped, so that no text can end a line or begin another event.
"""

import math
import struct
from typing import Final

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: ignored by every reader, seen by every proxy that would cut a silent connection."""
END_OF_EVENT: Final = b"\n\n"
"""The empty line after each server-sent event; an event contains none itself."""
_LINE_BREAKS: Final = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""Line breaks that JSON allows in a text: U+0085, U+2028 and U+2029 in UTF-8, and as JSON's escapes."""


def server_sent_event(data: bytes, name: bytes = b"", number: bytes = b"") -> bytes:
    """One event, with its `event:` and `id:` lines where they are given. No part of it contains a line break."""
    if number:
        return b"%bid: %b\ndata: %b\n\n" % (b"event: %b\n" % name if name else b"", number, data)
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data


def json_line(data: bytes) -> bytes:
    """One line of JSON lines (NDJSON), also for readers that end lines at any line break of Unicode, as httpx does."""
    if not data.isascii():
        for character, escaped in _LINE_BREAKS:
            data = data.replace(character, escaped)
    return data + b"\n"


def text_frame(payload: bytes) -> bytes:
    """One whole text message from a server: final, unmasked, not compressed."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return struct.pack("!BBH", 0x81, 126, size) + payload
    return struct.pack("!BBQ", 0x81, 127, size) + payload


def format_retry_after(seconds: float) -> str:
    """Whole seconds, at least one: 0 would invite a client to ask without a pause."""
    return str(max(1, math.ceil(seconds)))
