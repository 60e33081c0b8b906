"""Bytes of a connection -> HTTP/2 frames, and back (RFC 9113, section 4). No network, and no state of any stream."""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from tg_gateway.envoy.connection_faults import explain_beginning

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""
MAX_FRAME_BYTES = 16_384
"""Of a frame's payload in both directions, which is HTTP/2's default: nothing else is asked for."""
MAX_WINDOW = 2**31 - 1

# Kinds and flags are compared for each frame, which an enumeration would make slower.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

_HEAD = Struct(">HBBBI")
HEAD_BYTES = _HEAD.size

Frame = tuple[int, int, int, bytes]
"""Kind, flags, number of the stream, payload."""


class ErrorCode(IntEnum):
    """RFC 9113, section 7: those that are sent."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """What the peer did cannot be lived with: the connection ends.

    Attributes:
        code: for its GOAWAY.
    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamFault(Exception):
    """One stream ends; the connection goes on.

    Attributes:
        code: for its RST_STREAM.
        stream: its number.
    """

    def __init__(self, code: ErrorCode, stream: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.stream = stream


def write_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame. The payload may have MAX_FRAME_BYTES."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def strip_padding(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding.

    Raises:
        ConnectionFault: the padding is longer than the frame.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


class FrameCutter:
    """Cuts what a client sends, in whatever pieces it comes. It keeps one unfinished frame at most."""

    def __init__(self) -> None:
        self._unread = b""
        self._is_begun = False

    def cut(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes.

        Raises:
            ConnectionFault: this is no HTTP/2, or a frame is too large.
        """
        if self._unread:
            data = self._unread + data
        at = 0
        if not self._is_begun:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, explain_beginning(data))
            if len(data) < len(PREFACE):
                self._unread = data
                return
            self._is_begun, at = True, len(PREFACE)
        total = len(data)
        while total - at >= HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {size} bytes")
            end = at + HEAD_BYTES + size
            if total < end:
                break
            yield kind, flags, stream & MAX_WINDOW, data[at + HEAD_BYTES : end]
            at = end
        self._unread = data[at:]
