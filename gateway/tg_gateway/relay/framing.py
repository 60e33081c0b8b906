"""JSON -> bytes on a connection: server-sent events (WHATWG HTML, section 9.2) and WebSocket frames (RFC 6455, 5.2).

The JSON that comes in has its control characters escaped, so that no text can end a line or begin another event.
"""

import struct

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: ignored by every reader, seen by every proxy that would cut a silent connection."""
END_OF_BODY = b"0\r\n\r\n"
"""The last chunk of a chunked body (RFC 9112, section 7.1)."""


def event(data: bytes) -> bytes:
    """One event. `data` holds no line break."""
    return b"data: %b\n\n" % data


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event_chunk(data: bytes) -> bytes:
    """One event as a chunk of its own; the same as `chunk(event(data))`, and quicker."""
    return b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data)


def text_frame(payload: bytes) -> bytes:
    """One whole text message from a server: final, unmasked, not compressed."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return struct.pack("!BBH", 0x81, 126, size) + payload
    return struct.pack("!BBQ", 0x81, 127, size) + payload
