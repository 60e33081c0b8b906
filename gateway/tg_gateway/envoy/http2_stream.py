"""One stream of an HTTP/2 connection: what is to be sent waits for the peer's windows, what came opens our own."""

from typing import Protocol

from typing_extensions import override

from tg_gateway.envoy.http2_frames import (
    DATA,
    END_STREAM,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    RST_STREAM,
    WINDOW_UPDATE,
    ErrorCode,
    StreamFault,
    write_frame,
)

STREAM_WINDOW = 1024 * 1024
"""How far a peer may be ahead of what was taken."""


class Receiver(Protocol):
    """Who takes what comes on a stream."""

    def receive(self, data: bytes, ended: bool) -> None:
        """Take a piece of the body, which may be empty; `ended` = nothing follows."""

    @property
    def held(self) -> int:
        """Bytes in memory of what came, wherever they are until they are answered."""

    def overflow(self) -> None:
        """The streams of the connection hold too much: end this one, and hold nothing more."""

    def drained(self) -> None:
        """All that was sent has left."""

    def reset(self) -> None:
        """The peer has left, or the connection is lost: nothing can be sent any more."""


class _Nobody(Receiver):
    """The receiver of a stream that is over: it ignores everything."""

    held = 0

    @override
    def receive(self, data: bytes, ended: bool) -> None:
        pass

    @override
    def overflow(self) -> None:
        pass

    @override
    def drained(self) -> None:
        pass

    @override
    def reset(self) -> None:
        pass


class Carrier(Protocol):
    """The connection, as its streams see it."""

    def write(self, data: bytes) -> None:
        """Send these frames."""

    def write_head(self, flags: int, number: int, block: bytes) -> None:
        """Send an encoded block, in a frame of HEADERS with these flags."""

    def spend(self, wanted: int) -> int:
        """Take as much of the connection's window; returns what there was."""

    def wait(self, stream: "Http2Stream") -> None:
        """Call `pump` when the connection's window has opened."""

    def forget(self, stream: "Http2Stream") -> None:
        """Both sides are done with it."""


class Http2Stream:
    """A request and its answer.

    Args:
        carrier: the connection.
        number: of the stream.
        window: bytes that may be sent before the peer opens its window.

    Attributes:
        has_ended: whether the peer sends nothing more.
        over: whether nothing comes and goes any more.
        receiver: set by the one who accepts the stream, before anything is received.
    """

    receiver: Receiver

    def __init__(self, carrier: Carrier, number: int, window: int) -> None:
        self._carrier = carrier
        self._unsent = bytearray()
        self._trailers: bytes | None = None
        self._receive_window = STREAM_WINDOW
        self._owed = 0
        self.number = number
        self.window = window
        self.has_ended = False
        self.over = False

    @property
    def unsent(self) -> int:
        """Bytes that wait for a window."""
        return len(self._unsent)

    @property
    def held(self) -> int:
        """Bytes in memory, both ways."""
        return self.receiver.held + len(self._unsent)

    def begin(self, block: bytes) -> None:
        """Send the head of the answer: an encoded block."""
        if not self.over:
            self._carrier.write_head(0, self.number, block)

    def send(self, data: bytes) -> None:
        """Send a piece of the answer, as soon as the windows allow it."""
        if not self.over and self._trailers is None:
            self._unsent += data
            self.pump()

    def end(self, block: bytes) -> None:
        """Send trailers, after all that waits; nothing may follow. They are the head where nothing was sent before."""
        if not self.over and self._trailers is None:
            self._trailers = block
            self.pump()

    def abandon(self, code: ErrorCode) -> None:
        """End the stream at once, both ways. What waits is not sent."""
        if not self.over:
            self._carrier.write(write_frame(RST_STREAM, 0, self.number, code.to_bytes(4)))
            self._forget()

    def pump(self) -> None:
        """Send what the windows allow."""
        unsent = self._unsent
        had = len(unsent)
        while unsent and self.window > 0:
            size = self._carrier.spend(min(len(unsent), self.window, MAX_FRAME_BYTES))
            if not size:
                self._carrier.wait(self)
                break
            self.window -= size
            self._carrier.write(write_frame(DATA, 0, self.number, bytes(unsent[:size])))
            del unsent[:size]
        if unsent:
            return
        if self._trailers is not None:
            self._close(self._trailers)
        elif had:
            self.receiver.drained()

    def _close(self, trailers: bytes) -> None:
        self._carrier.write_head(END_STREAM, self.number, trailers)
        if not self.has_ended:
            # The rest of the request is of no interest (RFC 9113, section 8.1).
            self._carrier.write(write_frame(RST_STREAM, 0, self.number, ErrorCode.NO_ERROR.to_bytes(4)))
        self._forget()

    def widen(self, size: int) -> None:
        """The peer has opened its window.

        Raises:
            StreamFault: it is wider than a window may be.
        """
        self.window += size
        if self.window > MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, self.number, "a window is wider than allowed")
        self.pump()

    def receive(self, data: bytes, size: int, ended: bool) -> None:
        """Take a frame of the body, `size` bytes with its padding.

        Raises:
            StreamFault: the peer had ended the stream, or exceeds the window.
        """
        if self.has_ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, self.number, "data after the end of a stream")
        self._receive_window -= size
        if self._receive_window < 0:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, self.number, "data beyond the window")
        self.has_ended = ended
        if size > len(data):
            self.take(size - len(data))
        self.receiver.receive(data, ended)

    def take(self, size: int) -> None:
        """Widen the peer's window by the bytes of messages that were read."""
        self._owed += size
        if self._owed >= STREAM_WINDOW // 2 and not self.has_ended and not self.over:
            self._carrier.write(write_frame(WINDOW_UPDATE, 0, self.number, self._owed.to_bytes(4)))
            self._receive_window += self._owed
            self._owed = 0

    def drop(self) -> None:
        """The peer has reset the stream, or the connection is lost."""
        receiver = self.receiver
        self._forget()
        receiver.reset()

    def _forget(self) -> None:
        self.over = True
        self._unsent.clear()
        # Its messages go at once, and not when a circle of objects is found.
        self.receiver = _NOBODY
        self._carrier.forget(self)


_NOBODY = _Nobody()
