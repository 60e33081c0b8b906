"""SETTINGS frames: what is asked of the peer, and what it asks (RFC 9113, section 6.5)."""

from struct import Struct

from tg_gateway.envoy.http2_frames import (
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    SETTINGS,
    ConnectionFault,
    ErrorCode,
    write_frame,
)

DEFAULT_WINDOW = 65_535
"""Of a connection and of each stream, until something else is said."""
_ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME, _MAX_HEADERS = 2, 3, 4, 5, 6
_MAX_FRAME_LIMIT = 2**24 - 1
_SETTING = Struct(">HI")


def write_settings(streams: int, window: int, header_bytes: int) -> bytes:
    """The frame that a server begins with.

    Args:
        streams: that may be open at a time.
        window: bytes of a stream that may come before it is opened again.
        header_bytes: of one request.
    """
    wanted = ((_MAX_STREAMS, streams), (_INITIAL_WINDOW, window), (_MAX_HEADERS, header_bytes))
    return write_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in wanted))


class PeerSettings:
    """What the peer has asked for, as far as it matters here: frames of the default size are never too large.

    Attributes:
        window: bytes that may be sent on a new stream.
    """

    def __init__(self) -> None:
        self.window = DEFAULT_WINDOW

    def read(self, payload: bytes) -> int:
        """Take a frame's settings; return by how much the windows of open streams grow.

        Raises:
            ConnectionFault: a value that is not allowed.
        """
        if len(payload) % _SETTING.size:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a setting has 6 bytes")
        had = self.window
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                if value > MAX_WINDOW:
                    raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window is wider than allowed")
                self.window = value
            elif (name == _ENABLE_PUSH and value > 1) or (
                name == _MAX_FRAME and not MAX_FRAME_BYTES <= value <= _MAX_FRAME_LIMIT
            ):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"setting {name} cannot be {value}")
        return self.window - had
