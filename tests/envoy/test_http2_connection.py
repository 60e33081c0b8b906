"""Our half of HTTP/2 without a network: frames in any pieces, blocks of headers, an orderly end."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envoy.http2_peer import BEGINNING, call_headers, opened
from tg_gateway.envoy.http2_connection import MAX_IDLE_FRAMES, Http2Connection
from tg_gateway.envoy.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    FrameCutter,
    write_frame,
)
from tg_gateway.envoy.http2_stream import Http2Stream


class Recorder:
    """Takes what comes on each stream."""

    def __init__(self, told: list[object], number: int) -> None:
        self._told = told
        self._number = number

    def receive(self, data: bytes, ended: bool) -> None:
        """See `Receiver`."""
        self._told.append((self._number, data, ended))

    held = 0

    def overflow(self) -> None:
        """See `Receiver`."""

    def drained(self) -> None:
        """See `Receiver`."""

    def reset(self) -> None:
        """See `Receiver`."""
        self._told.append((self._number, "reset"))


def take(pieces: Sequence[bytes]) -> tuple[list[Any], bytes]:
    """What streams are told, and what the peer gets."""
    told: list[Any] = []
    sent = bytearray()

    def accept(stream: Http2Stream, fields: Any) -> bool:
        stream.receiver = Recorder(told, stream.number)
        told.append((stream.number, dict(fields)))
        return stream.number != 9

    connection = Http2Connection(sent.extend, accept, lambda: told.append("finished"))
    connection.begin()
    for piece in pieces:
        connection.receive(piece)
    return told, bytes(sent)


LONG = (
    BEGINNING
    + write_frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\x10\x00")
    + opened(1)
    + write_frame(DATA, 0, 1, b"abc")
    + write_frame(HEADERS, 0, 3, call_headers()[:10])
    + write_frame(CONTINUATION, 0, 3, call_headers()[10:30])
    + write_frame(CONTINUATION, END_HEADERS, 3, call_headers()[30:])
    # Indexed from here on: one entry is made, and then meant.
    + write_frame(HEADERS, END_HEADERS, 5, b"\x40\x01a\x01b" + call_headers())
    + write_frame(HEADERS, END_HEADERS, 7, b"\xbe" + call_headers())
    + write_frame(DATA, PADDED, 3, b"\x04defpadd")
    + write_frame(PING, 0, 0, b"12345678")
    + opened(9)
    + write_frame(RST_STREAM, 0, 5, bytes(4))
    + write_frame(DATA, END_STREAM, 1, b"end")
    + write_frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x00\x01t\x01t")
    + write_frame(DATA, 0, 99, b"of no stream")
    + write_frame(PING, 0, 0, b"never read")
)


@given(cuts=st.lists(st.integers(0, len(LONG))))
@settings(max_examples=200)
def test_pieces_of_any_size_say_the_same(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(LONG)]
    pieces = [LONG[start:end] for start, end in pairwise(marks)]
    told, sent = take(pieces)
    assert (told, sent) == take([LONG])
    assert (1, b"abc", False) in told
    assert (3, b"def", False) in told
    assert (5, "reset") in told
    assert (3, b"", True) in told
    assert told[-1] == "finished"


def test_a_block_that_is_known_means_something_else_when_the_table_has_changed() -> None:
    sent = BEGINNING
    for number, value in ((1, b"a"), (5, b"b")):
        sent += write_frame(HEADERS, END_HEADERS, number, b"\x40\x01n\x01" + value + call_headers())
        # The same bytes each time: the newest entry.
        sent += write_frame(HEADERS, END_HEADERS, number + 2, b"\xbe" + call_headers())
    told, _ = take([sent])
    assert [(number, fields[b"n"]) for number, fields in told] == [(1, b"a"), (3, b"a"), (5, b"b"), (7, b"b")]


def test_a_goaway_never_takes_back_what_one_before_has_refused() -> None:
    sent = bytearray(PREFACE)

    def accept(stream: Http2Stream, _: object) -> bool:
        stream.receiver = Recorder([], stream.number)
        return True

    connection = Http2Connection(sent.extend, accept, lambda: None)
    connection.receive(BEGINNING + opened(1))
    connection.drain()
    connection.receive(write_frame(PING, 1, 0, b"draining") + opened(3) + write_frame(PING, 1, 0, b"draining"))
    connection.receive(opened(5) + write_frame(PUSH_PROMISE, 0, 1, bytes(4)))
    lasts = [int.from_bytes(payload[:4]) for kind, _, _, payload in FrameCutter().cut(bytes(sent)) if kind == GOAWAY]
    assert lasts == [MAX_WINDOW, 1, 1, 1]


def test_pings_of_a_connection_that_has_nothing_to_do_are_no_flood_where_time_passes() -> None:
    sent = bytearray()
    connection = Http2Connection(sent.extend, lambda *_: True, lambda: None)
    connection.receive(BEGINNING)
    for _ in range(3):
        connection.receive(write_frame(PING, 0, 0, bytes(8)) * (MAX_IDLE_FRAMES - 1))
        connection.calm()
    assert not connection.closed
    connection.receive(write_frame(PING, 0, 0, bytes(8)) * (MAX_IDLE_FRAMES + 1))
    assert connection.closed
