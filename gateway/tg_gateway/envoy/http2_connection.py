"""Frames of one connection -> its streams, and back: a server's half of HTTP/2 (RFC 9113). No network and no clock.

It is as small as one gRPC service behind Envoy needs: no push, no priorities, no compression of what is sent.
"""

from collections.abc import Callable, Mapping

from tg_gateway.envoy.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    FrameCutter,
    StreamFault,
    strip_padding,
    write_frame,
)
from tg_gateway.envoy.http2_headers import MAX_HEADER_BYTES, TOO_LARGE, Fields, HeaderReader
from tg_gateway.envoy.http2_memory import MAX_HELD_BYTES, end_largest
from tg_gateway.envoy.http2_settings import DEFAULT_WINDOW, PeerSettings, write_settings
from tg_gateway.envoy.http2_stream import STREAM_WINDOW, Http2Stream

CONNECTION_WINDOW = 16 * 1024 * 1024
"""It is opened again whatever the streams do: one whose messages nobody takes must not stop the others. Each time half
of it is used, what they hold is counted."""
MAX_STREAMS = 10_000
"""Streams at a time; what is more waits in Envoy."""
MAX_IDLE_FRAMES = 4 * MAX_STREAMS
"""Frames in a row, until `calm`, that bring nothing: pings, empty data, resets of what is over. Each costs time, and
some an answer. All streams may be refused at once, and then an end, a reset and windows of each are on their way."""
MAX_SETTINGS = 300
"""Frames of settings until `calm`, whatever comes between them: each may change the windows of all streams."""
_DRAINING = b"draining"
_NO_TABLE = b"\x20"
"""HPACK: what is sent has no dynamic table. A peer that allows none wants to hear it in the first block."""

Accept = Callable[[Http2Stream, Fields], bool]
"""Gives a new stream its receiver; False = it is refused now and may be asked again. Of headers that are too large it
gets TOO_LARGE."""


class Http2Connection:
    """The state of one connection.

    Args:
        write: sends bytes to the peer.
        accept: see `Accept`.
        finish: called after a fault, which `closed` says, and when the last stream of a drained connection is over.
        max_held: bytes that the streams may hold together, and half of CONNECTION_WINDOW more.

    Attributes:
        closed: why it ended by a fault; "" = it did not. Nothing is taken and sent any more.
        streams: those that are open, by their numbers.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        accept: Accept,
        finish: Callable[[], None],
        max_held: int = MAX_HELD_BYTES,
    ) -> None:
        self._write = write
        self._finish = finish
        self._accept = accept
        self._max_held = max_held
        self._cutter = FrameCutter()
        self._headers = HeaderReader()
        self._settings = PeerSettings()
        self._is_begun = False
        self._last = 0
        self._limit = MAX_WINDOW
        self._window = DEFAULT_WINDOW
        self._receive_window = CONNECTION_WINDOW
        self._idle_frames = 0
        self._settings_frames = 0
        self._waiting: dict[int, Http2Stream] = {}
        self._is_paused = False
        self._draining = False
        self._prefix = _NO_TABLE
        self.closed = ""
        self.streams: dict[int, Http2Stream] = {}
        self._takers: Mapping[int, Callable[[int, int, bytes], None]] = {
            DATA: self._take_data,
            HEADERS: self._take_headers,
            PRIORITY: self._take_priority,
            RST_STREAM: self._take_reset,
            SETTINGS: self._take_settings,
            PUSH_PROMISE: self._take_push,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window_update,
            CONTINUATION: self._take_continuation,
        }

    def begin(self) -> None:
        """Say what a server says first."""
        opened = (CONNECTION_WINDOW - DEFAULT_WINDOW).to_bytes(4)
        self._write(
            write_settings(MAX_STREAMS, STREAM_WINDOW, MAX_HEADER_BYTES) + write_frame(WINDOW_UPDATE, 0, 0, opened)
        )

    def receive(self, data: bytes) -> None:
        """Take what the peer sent, in whatever pieces. A fault sends GOAWAY and sets `closed`."""
        if self.closed:
            return
        try:
            for kind, flags, number, payload in self._cutter.cut(data):
                try:
                    self._take(kind, flags, number, payload)
                except StreamFault as fault:
                    self._reset(fault)
        except ConnectionFault as fault:
            self._fail(fault)

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self._is_begun:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is no SETTINGS")
            self._is_begun = True
        if self._headers.stream and (kind != CONTINUATION or number != self._headers.stream):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "headers are followed by something else than their rest")
        if (take := self._takers.get(kind)) is None:
            self._count_idle()
        else:
            take(flags, number, payload)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        # Nobody can exceed it: no frame is larger than the half that is left when it is opened again.
        self._receive_window -= size
        if self._receive_window <= CONNECTION_WINDOW // 2:
            end_largest(self.streams.values(), self._max_held)
            self._write(write_frame(WINDOW_UPDATE, 0, 0, (CONNECTION_WINDOW - self._receive_window).to_bytes(4)))
            self._receive_window = CONNECTION_WINDOW
        data = strip_padding(flags, payload)
        if (stream := self.streams.get(number)) is None:
            self._expect_known(number)
            # What was on its way when the stream ended here: as much as its window, in frames of any size.
            if not data:
                self._count_idle()
            return
        if data or flags & END_STREAM:
            self._idle_frames = 0
        else:
            self._count_idle()
        stream.receive(data, size, bool(flags & END_STREAM))

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client's stream has an odd number")
        if (found := self._headers.begin(flags, number, payload)) is not None:
            self._open(number, *found)

    def _take_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._headers.stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION without headers before it")
        if (found := self._headers.proceed(flags, payload)) is not None:
            self._open(number, *found)

    def _open(self, number: int, fields: Fields, ended: bool) -> None:
        if (stream := self.streams.get(number)) is not None:
            if not ended:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, number, "trailers that do not end their stream")
            if fields is TOO_LARGE:
                raise StreamFault(ErrorCode.ENHANCE_YOUR_CALM, number, "trailers that are too large")
            stream.receive(b"", 0, True)
            return
        if number <= self._last:
            # Trailers of a stream that has ended here, on their way when it did.
            self._count_idle()
            return
        self._last = number
        if number > self._limit or len(self.streams) >= MAX_STREAMS:
            raise StreamFault(ErrorCode.REFUSED_STREAM, number, "no more streams are taken")
        stream = self.streams[number] = Http2Stream(self, number, self._settings.window)
        stream.has_ended = ended
        self._idle_frames = 0
        if not self._accept(stream, fields):
            stream.abandon(ErrorCode.REFUSED_STREAM)
        elif ended and not stream.over:
            stream.receiver.receive(b"", True)

    def _take_priority(self, _: int, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise StreamFault(ErrorCode.FRAME_SIZE_ERROR, number, "a PRIORITY frame has 5 bytes")
        self._count_idle()

    def _take_reset(self, _: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an RST_STREAM frame has 4 bytes")
        self._expect_known(number)
        # Envoy ends each exchange this way, so that resets are not counted. What a stream costs is bounded by `accept`.
        if (stream := self.streams.get(number)) is not None:
            stream.drop()
        else:
            self._count_idle()

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement has no settings")
            self._count_idle()
            return
        self._settings_frames += 1
        if self._settings_frames > MAX_SETTINGS:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames of settings")
        change = self._settings.read(payload)
        self._write(write_frame(SETTINGS, ACK, 0))
        if change:
            try:
                for stream in tuple(self.streams.values()):
                    stream.widen(change)
            except StreamFault as fault:
                # The settings are of all streams, and so is the fault (RFC 9113, section 6.9.2).
                raise ConnectionFault(fault.code, str(fault)) from None

    def _take_push(self, _: int, __: int, ___: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client cannot push")

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a PING frame has 8 bytes")
        self._count_idle()
        if not flags & ACK:
            self._write(write_frame(PING, ACK, 0, payload))
        elif self._draining and payload == _DRAINING:
            # Whatever was on its way when the first GOAWAY left has come before this.
            self._limit = min(self._limit, self._last)
            self._say_goaway(ErrorCode.NO_ERROR, b"")
            self._finish_if_drained()

    def _take_goaway(self, _: int, number: int, __: bytes) -> None:
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        self._count_idle()

    def _take_window_update(self, _: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a WINDOW_UPDATE frame has 4 bytes")
        self._count_idle()
        size = int.from_bytes(payload) & MAX_WINDOW
        if number:
            self._expect_known(number)
            if not size:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, number, "a window is opened by nothing")
            if (stream := self.streams.get(number)) is not None:
                stream.widen(size)
            return
        self._window += size
        if not size or self._window > MAX_WINDOW:
            code = ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR
            raise ConnectionFault(code, "the connection's window is opened by nothing, or too wide")
        self._pump()

    def _expect_known(self, number: int) -> None:
        if not number or not number & 1 or number > self._last:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {number} was never opened")

    def _count_idle(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > MAX_IDLE_FRAMES:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that bring nothing")

    def calm(self) -> None:
        """Some time has passed: what is too much at once may come again."""
        self._idle_frames = self._settings_frames = 0

    def _reset(self, fault: StreamFault) -> None:
        if (stream := self.streams.get(fault.stream)) is not None:
            receiver = stream.receiver
            stream.abandon(fault.code)
            receiver.reset()
        else:
            self._write(write_frame(RST_STREAM, 0, fault.stream, fault.code.to_bytes(4)))

    def _fail(self, fault: ConnectionFault) -> None:
        self._say_goaway(fault.code, str(fault).encode())
        self.lose(str(fault))
        self._finish()

    def lose(self, reason: str) -> None:
        """Nothing comes and goes any more: reset what is open."""
        self.closed = self.closed or reason
        for stream in tuple(self.streams.values()):
            stream.drop()

    def drain(self) -> None:
        """Ask the peer to open no more streams; those that it has opened meanwhile are served."""
        if self._draining or self.closed:
            return
        self._draining = True
        if not self._is_begun:
            # It may be asking just now: what it asks is not taken, and may be asked elsewhere.
            self._say_goaway(ErrorCode.NO_ERROR, b"")
            self._finish()
            return
        self._write(write_frame(GOAWAY, 0, 0, MAX_WINDOW.to_bytes(4) + bytes(4)))
        self.ping(_DRAINING)

    def ping(self, mark: bytes) -> None:
        """Send what the peer must answer. The mark has 8 bytes."""
        self.write(write_frame(PING, 0, 0, mark))

    def pause(self) -> None:
        """The network takes no more: keep data back."""
        self._is_paused = True

    def resume(self) -> None:
        """The network takes more again."""
        self._is_paused = False
        self._pump()

    def _say_goaway(self, code: ErrorCode, reason: bytes) -> None:
        # What was refused after the last GOAWAY must not count as taken now.
        last = min(self._last, self._limit)
        self._write(write_frame(GOAWAY, 0, 0, last.to_bytes(4) + code.to_bytes(4) + reason))

    def _finish_if_drained(self) -> None:
        if self._limit != MAX_WINDOW and not self.streams and not self.closed:
            self._finish()

    def _pump(self) -> None:
        while self._waiting and self._window > 0 and not self._is_paused:
            self._waiting.pop(next(iter(self._waiting))).pump()

    def write(self, data: bytes) -> None:
        """See `Carrier`."""
        if not self.closed:
            self._write(data)

    def write_head(self, flags: int, number: int, block: bytes) -> None:
        """See `Carrier`."""
        prefix, self._prefix = self._prefix, b""
        self.write(write_frame(HEADERS, END_HEADERS | flags, number, prefix + block))

    def spend(self, wanted: int) -> int:
        """See `Carrier`."""
        if self._is_paused or self._window <= 0:
            return 0
        size = min(wanted, self._window)
        self._window -= size
        self._idle_frames = 0
        return size

    def wait(self, stream: Http2Stream) -> None:
        """See `Carrier`."""
        self._waiting[stream.number] = stream

    def forget(self, stream: Http2Stream) -> None:
        """See `Carrier`."""
        self.streams.pop(stream.number, None)
        self._waiting.pop(stream.number, None)
        self._finish_if_drained()
