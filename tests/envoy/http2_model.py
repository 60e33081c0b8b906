"""Our half of HTTP/2 without a network, and a peer that keeps its own count of all windows."""

from collections.abc import Mapping

from tg_gateway.envoy.http2_connection import Http2Connection
from tg_gateway.envoy.http2_frames import (
    DATA,
    GOAWAY,
    HEADERS,
    MAX_FRAME_BYTES,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    write_frame,
)
from tg_gateway.envoy.http2_stream import Http2Stream


def parse(data: bytes) -> list[Frame]:
    """Frames, read by other code than ours."""
    frames, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3])
        frames.append((data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9]), data[at + 9 : at + 9 + size]))
        at += 9 + size
    return frames


class Taker:
    """Takes what comes on a stream, and gives the window back when it is told to."""

    def __init__(self, stream: Http2Stream) -> None:
        self.stream = stream
        self.body = bytearray()
        self.ended = False
        self.was_reset = False
        self.drains = 0

    @property
    def held(self) -> int:
        """See `Receiver`."""
        return len(self.body)

    def receive(self, data: bytes, ended: bool) -> None:
        """See `Receiver`."""
        assert not self.ended
        self.body += data
        self.ended = ended

    def overflow(self) -> None:
        """See `Receiver`."""

    def drained(self) -> None:
        """See `Receiver`."""
        self.drains += 1

    def reset(self) -> None:
        """See `Receiver`."""
        self.was_reset = True


class ModelPeer:
    """A client that counts.

    Attributes:
        frames: what came since it was cleared.
        may_send: by stream, 0 = the connection: what we may send.
        may_get: the same, the other way.
        got: bodies by stream.
        takers: who takes each stream's body.
    """

    def __init__(self, initial: int = 65_535) -> None:
        self._initial = initial
        self.frames: list[Frame] = []
        self.may_send = {0: 65_535}
        self.may_get = {0: 65_535}
        self.got: dict[int, bytearray] = {}
        self.takers: dict[int, Taker] = {}
        self.fields: dict[int, Mapping[bytes, bytes]] = {}
        self.stream_window = 65_535
        self.finished = 0
        self.connection = Http2Connection(self._take, self._accept, self._finish)
        self.connection.begin()
        self.send(PREFACE, settings(4, initial))

    def _finish(self) -> None:
        self.finished += 1

    def _accept(self, stream: Http2Stream, fields: Mapping[bytes, bytes]) -> bool:
        stream.receiver = self.takers[stream.number] = Taker(stream)
        self.fields[stream.number] = fields
        return True

    def _take(self, data: bytes) -> None:
        for kind, flags, number, payload in parse(data):
            self.frames.append((kind, flags, number, payload))
            assert len(payload) <= MAX_FRAME_BYTES
            if kind == DATA:
                assert payload or flags
                for each in (0, number):
                    self.may_get[each] -= len(payload)
                    assert self.may_get[each] >= 0, "more than a window allows"
                self.got.setdefault(number, bytearray()).extend(payload)
            elif kind == WINDOW_UPDATE:
                self.may_send[number] += int.from_bytes(payload)
            elif kind == SETTINGS and not flags:
                self.stream_window = next(
                    int.from_bytes(payload[at + 2 : at + 6]) for at in range(0, len(payload), 6) if payload[at + 1] == 4
                )

    def send(self, *frames: bytes) -> list[Frame]:
        """Send frames as they are; returns what comes for them."""
        self.frames = []
        self.connection.receive(b"".join(frames))
        return self.frames

    def open(self, number: int, flags: int = 4, block: bytes = b"\x83") -> list[Frame]:
        """Open a stream."""
        self.may_send[number], self.may_get[number] = self.stream_window, self._initial
        return self.send(write_frame(HEADERS, flags, number, block))

    def set_initial(self, window: int) -> list[Frame]:
        """Change the window of all streams."""
        for number in self.may_get:
            if number:
                self.may_get[number] += window - self._initial
        self._initial = window
        return self.send(settings(4, window))

    def widen(self, number: int, size: int) -> list[Frame]:
        """Let more come on a stream, or on all."""
        self.may_get[number] += size
        return self.send(write_frame(WINDOW_UPDATE, 0, number, size.to_bytes(4)))

    def data(self, number: int, body: bytes, padding: int | None = None, flags: int = 0) -> list[Frame]:
        """Send a piece of a body."""
        payload = body if padding is None else bytes((padding,)) + body + bytes(padding)
        for each in (0, number):
            self.may_send[each] -= len(payload)
        return self.send(write_frame(DATA, flags | (0 if padding is None else 8), number, payload))

    @property
    def reset_code(self) -> int | None:
        """The code of the RST_STREAM that came last."""
        return next((int.from_bytes(frame[3]) for frame in reversed(self.frames) if frame[0] == RST_STREAM), None)

    @property
    def goaways(self) -> list[tuple[int, int]]:
        """The last streams and codes of those that came last."""
        told = [frame[3] for frame in self.frames if frame[0] == GOAWAY]
        return [(int.from_bytes(each[:4]), int.from_bytes(each[4:8])) for each in told]


def settings(name: int, value: int) -> bytes:
    """A frame with one setting."""
    return write_frame(SETTINGS, 0, 0, name.to_bytes(2) + value.to_bytes(4))
