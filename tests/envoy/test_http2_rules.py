"""Our half of HTTP/2, rule by rule: what a peer gets for each kind of frame, and what streams are told."""

import tracemalloc

import hpack
import pytest

from tests.envoy.http2_model import ModelPeer, settings
from tests.envoy.http2_peer import call_headers, literal
from tg_gateway.envoy.grpc_call import OPENING
from tg_gateway.envoy.http2_connection import MAX_STREAMS
from tg_gateway.envoy.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    PADDED,
    PING,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    write_frame,
)
from tg_gateway.envoy.http2_headers import MAX_CONTINUATIONS, MAX_KNOWN, HeaderReader
from tg_gateway.envoy.http2_stream import STREAM_WINDOW

BLOCK = literal(":path", "/p")
END = (b"\x88", END_HEADERS | END_STREAM)
PRIORITY_FIELD = bytes(5)
ANSWERED = write_frame(PING, ACK, 0, b"draining")


def refused(number: int, code: ErrorCode) -> tuple[int, int, int, bytes]:
    return RST_STREAM, 0, number, int(code).to_bytes(4)


def test_a_server_begins_with_its_settings() -> None:
    peer = ModelPeer()
    connection, sent = peer.connection, peer.frames
    assert sent == [(SETTINGS, ACK, 0, b"")]
    peer.frames = []
    connection.begin()
    (_, flags, number, payload), window = peer.frames
    told = {payload[at + 1]: int.from_bytes(payload[at + 2 : at + 6]) for at in range(0, len(payload), 6)}
    assert (flags, number, told) == (0, 0, {3: MAX_STREAMS, 4: STREAM_WINDOW, 6: 32 * 1024})
    assert window[2:] == (0, (16 * 1024 * 1024 - 65_535).to_bytes(4))


@pytest.mark.parametrize("ended", [True, False])
def test_an_answer_ends_its_stream_and_stops_a_request_that_goes_on(ended: bool) -> None:
    peer = ModelPeer()
    peer.open(1, END_HEADERS | (END_STREAM if ended else 0))
    assert peer.takers[1].ended == ended
    peer.frames = []
    stream = peer.takers[1].stream
    stream.begin(OPENING)
    stream.send(b"abc")
    stream.end(b"\x89")
    (head, *rest), decoder = peer.frames, hpack.Decoder()
    assert head[:3] == (HEADERS, END_HEADERS, 1)
    assert {str(name): str(value) for name, value in decoder.decode(head[3])} == {
        ":status": "200",
        "content-type": "application/grpc",
    }
    assert rest[0] == (DATA, 0, 1, b"abc")
    assert rest[1][:3] == (HEADERS, END_HEADERS | END_STREAM, 1)
    assert rest[2:] == ([] if ended else [refused(1, ErrorCode.NO_ERROR)])
    assert not peer.connection.streams


def test_only_the_first_block_says_that_there_is_no_table() -> None:
    peer = ModelPeer()
    for number in (1, 3):
        peer.open(number)
        peer.takers[number].stream.begin(OPENING)
        assert (peer.frames[-1][3] == b"\x20" + OPENING) == (number == 1)
        assert peer.frames[-1][3].endswith(OPENING)


@pytest.mark.parametrize("by", ["headers", "data", "trailers"])
def test_a_request_ends_once_and_nothing_may_follow(by: str) -> None:
    peer = ModelPeer()
    peer.open(1, END_HEADERS | (END_STREAM if by == "headers" else 0))
    if by == "data":
        peer.data(1, b"x", flags=END_STREAM)
    elif by == "trailers":
        peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("t", "t")))
    assert peer.takers[1].ended
    assert not peer.takers[1].was_reset
    assert peer.data(1, b"y") == [refused(1, ErrorCode.STREAM_CLOSED)]
    assert peer.takers[1].was_reset


def test_a_reset_ends_a_stream_and_no_other() -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.open(3)
    assert peer.send(write_frame(RST_STREAM, 0, 1, bytes(4))) == []
    assert (peer.takers[1].was_reset, peer.takers[3].was_reset) == (True, False)
    assert set(peer.connection.streams) == {3}
    peer.takers[1].stream.send(b"late")
    peer.takers[1].stream.end(b"\x89")
    assert peer.frames == []
    # What was on its way is let pass.
    assert peer.data(1, b"late") == []
    assert peer.send(write_frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK)) == []


@pytest.mark.parametrize("size", [3, 5])
def test_a_reset_has_four_bytes(size: int) -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.send(write_frame(RST_STREAM, 0, 1, bytes(size)))
    assert peer.goaways == [(1, ErrorCode.FRAME_SIZE_ERROR)]


@pytest.mark.parametrize("number", [2, 5])
def test_what_was_never_opened_can_have_no_data(number: int) -> None:
    peer = ModelPeer()
    peer.open(3)
    peer.send(write_frame(DATA, 0, number, b"x"))
    assert peer.goaways == [(3, ErrorCode.PROTOCOL_ERROR)]


@pytest.mark.parametrize("number", [2, 4])
def test_a_clients_streams_have_odd_numbers(number: int) -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.open(number)
    assert peer.goaways == [(1, ErrorCode.PROTOCOL_ERROR)]


def test_a_number_is_not_opened_again_nor_one_below_it() -> None:
    peer = ModelPeer()
    peer.open(5)
    peer.send(write_frame(RST_STREAM, 0, 5, bytes(4)))
    taker = peer.takers[5]
    assert peer.open(5) == peer.open(3) == []
    assert set(peer.takers) == {5}
    assert peer.takers[5] is taker


@pytest.mark.parametrize(
    ("payload", "body"),
    [(b"\0", b""), (b"\0abc", b"abc"), (b"\x02abcpp", b"abc"), (b"\x03ppp", b""), (b"\x04ppp", None), (b"", None)],
)
def test_padding_is_taken_off(payload: bytes, body: bytes | None) -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.send(write_frame(DATA, PADDED, 1, payload))
    assert peer.goaways == ([] if body is not None else [(1, ErrorCode.PROTOCOL_ERROR)])
    assert peer.takers[1].body == (body or b"")


@pytest.mark.parametrize(
    ("flags", "payload", "code"),
    [
        (PADDED, b"\x03" + BLOCK + b"ppp", None),
        (HAS_PRIORITY, PRIORITY_FIELD + BLOCK, None),
        (PADDED | HAS_PRIORITY, b"\x01" + PRIORITY_FIELD + BLOCK + b"p", None),
        (HAS_PRIORITY, bytes(4), ErrorCode.FRAME_SIZE_ERROR),
        (PADDED, b"\x09" + BLOCK[:3], ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_headers_have_padding_and_priority_around_them(flags: int, payload: bytes, code: ErrorCode | None) -> None:
    peer = ModelPeer()
    peer.open(1, END_HEADERS | flags, payload)
    assert [each for _, each in peer.goaways] == ([] if code is None else [code])
    assert peer.fields == ({1: {b":path": b"/p"}} if code is None else {})


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("flag", [True, False])
def test_the_first_frame_of_headers_says_whether_the_stream_ends(ended: bool, flag: bool) -> None:
    peer = ModelPeer()
    peer.open(1, END_STREAM if ended else 0, BLOCK[:3])
    assert not peer.takers
    peer.send(write_frame(CONTINUATION, END_HEADERS | (END_STREAM if flag else 0), 1, BLOCK[3:]))
    assert peer.takers[1].ended == ended
    assert peer.fields == {1: {b":path": b"/p"}}


@pytest.mark.parametrize("number", [1, 3])
def test_headers_go_on_in_their_own_stream(number: int) -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.open(3, 0, BLOCK[:3])
    peer.send(write_frame(CONTINUATION, END_HEADERS, number, BLOCK[3:]))
    assert bool(peer.goaways) == (number != 3)
    assert (3 in peer.takers) == (number == 3)


def test_each_block_may_have_its_continuations() -> None:
    peer = ModelPeer()
    for number in (1, 3):
        peer.open(number, 0, BLOCK)
        peer.send(*[write_frame(CONTINUATION, 0, number)] * (MAX_CONTINUATIONS - 1))
        peer.send(write_frame(CONTINUATION, END_HEADERS, number))
        assert number in peer.takers
    peer.open(5, 0, BLOCK)
    peer.send(*[write_frame(CONTINUATION, 0, 5)] * (MAX_CONTINUATIONS + 1))
    assert peer.goaways == [(3, ErrorCode.ENHANCE_YOUR_CALM)]


def test_a_block_that_was_known_is_read_again_after_a_change_of_the_table() -> None:
    peer = ModelPeer()
    made = [
        b"\x40\x01n\x01a",
        b"\xbe",
        b"\x40\x01n\x01b",
        b"\xbe",
        b"\x40\x01n\x01c" + b"\x40\x01n\x01d",
        b"\xbe",
        b"\xbf",
    ]
    for at, block in enumerate(made):
        peer.open(2 * at + 1, END_HEADERS, block)
    assert [fields[b"n"] for fields in peer.fields.values()] == [b"a", b"a", b"b", b"b", b"d", b"d", b"c"]
    # A table of no size has no entries, and one that has its size back neither.
    peer.open(21, END_HEADERS, b"\x20\x3f\xe1\x1f" + BLOCK)
    peer.open(23, END_HEADERS, b"\xbe")
    assert peer.goaways == [(21, ErrorCode.COMPRESSION_ERROR)]


def test_a_block_that_was_known_is_read_again_where_a_new_entry_takes_the_place_of_an_old_one() -> None:
    peer = ModelPeer()
    # A table with room for one entry.
    for at, block in enumerate(
        (b"\x3f\x03\x40\x01n\x01a", b"\xbe", b"\x40\x01n\x01b", b"\xbe", b"\x40\x01n\x01a", b"\xbe")
    ):
        peer.open(2 * at + 1, END_HEADERS, block)
    assert [fields[b"n"] for fields in peer.fields.values()] == [b"a", b"a", b"b", b"b", b"a", b"a"]


def test_a_block_that_sets_the_tables_size_sets_it_each_time() -> None:
    peer = ModelPeer()
    none, some = b"\x20" + BLOCK, b"\x3f\xe1\x1f" + BLOCK
    for at, block in enumerate((none, some, none, b"\x40\x01n\x01a")):
        peer.open(2 * at + 1, END_HEADERS, block)
    # There is no room for an entry again.
    peer.open(9, END_HEADERS, b"\xbe")
    assert peer.goaways == [(7, ErrorCode.COMPRESSION_ERROR)]


def test_no_more_blocks_than_some_are_remembered() -> None:
    reader = HeaderReader()
    tracemalloc.start()
    try:
        for at in range(10 * MAX_KNOWN):
            block = call_headers(n=str(at)) + literal("x", "x" * 100) * 20
            fields, _ = reader.begin(END_HEADERS, 2 * at + 1, block) or ({}, False)
            assert fields[b"n"] == b"%d" % at
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Each has 2 KB.
    assert kept < 3 * MAX_KNOWN * 2_000


def test_of_a_repeated_header_the_last_one_counts() -> None:
    peer = ModelPeer()
    peer.open(1, END_HEADERS, literal("a", "1") + literal("a", "2"))
    assert peer.fields == {1: {b"a": b"2"}}


def test_settings_and_pings_are_answered_once_and_answers_are_not() -> None:
    peer = ModelPeer()
    assert peer.send(settings(1, 0), write_frame(PING, 0, 0, b"12345678")) == [
        (SETTINGS, ACK, 0, b""),
        (PING, ACK, 0, b"12345678"),
    ]
    assert peer.send(write_frame(SETTINGS, ACK, 0), write_frame(PING, ACK, 0, b"12345678")) == []


@pytest.mark.parametrize(("size", "is_right"), [(16_383, False), (16_384, True), (2**24 - 1, True), (2**24, False)])
def test_sizes_of_frames_that_a_peer_may_ask_for(size: int, is_right: bool) -> None:
    peer = ModelPeer()
    peer.send(settings(5, size))
    assert peer.goaways == ([] if is_right else [(0, ErrorCode.PROTOCOL_ERROR)])


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1])
def test_how_large_a_frame_may_be(size: int) -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.data(1, bytes(size))
    assert peer.goaways == ([] if size == MAX_FRAME_BYTES else [(1, ErrorCode.FRAME_SIZE_ERROR)])


def test_frames_of_kinds_that_are_not_known_are_let_pass() -> None:
    peer = ModelPeer()
    assert peer.send(write_frame(10, 0xFF, 7, b"x"), write_frame(200, 0, 0)) == []


def test_no_more_streams_than_were_told_may_be_open() -> None:
    peer = ModelPeer()
    for at in range(MAX_STREAMS):
        assert peer.open(2 * at + 1) == []
    late = 2 * MAX_STREAMS + 1
    assert peer.open(late) == [refused(late, ErrorCode.REFUSED_STREAM)]
    assert late not in peer.takers
    # The refused one may get what was on its way, and its number is used.
    assert peer.data(late, b"x") == []
    peer.send(write_frame(RST_STREAM, 0, 1, bytes(4)))
    assert peer.open(late + 2) == []
    assert late + 2 in peer.takers


def test_the_last_of_all_numbers_may_be_opened() -> None:
    peer = ModelPeer()
    assert peer.open(MAX_WINDOW) == []
    assert MAX_WINDOW in peer.takers


def test_a_goaway_says_what_was_taken() -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.open(7)
    peer.send(write_frame(PING, 0, 0, b"short"))
    assert peer.goaways == [(7, ErrorCode.FRAME_SIZE_ERROR)]
    assert peer.finished == 1
    assert peer.takers[1].was_reset
    assert peer.send(write_frame(PING, 0, 0, bytes(8))) == []


def test_a_drained_connection_takes_what_was_on_its_way_and_finishes_with_the_last() -> None:
    peer = ModelPeer()
    peer.open(1)
    peer.frames = []
    peer.connection.drain()
    peer.connection.drain()
    assert peer.frames == [(GOAWAY, 0, 0, MAX_WINDOW.to_bytes(4) + bytes(4)), (PING, 0, 0, b"draining")]
    peer.open(3)
    # Another answer is none to this question.
    assert peer.send(write_frame(PING, ACK, 0, b"keepaliv")) == []
    peer.open(5)
    assert set(peer.takers) == {1, 3, 5}
    peer.send(ANSWERED)
    assert peer.goaways == [(5, ErrorCode.NO_ERROR)]
    assert peer.open(7) == [refused(7, ErrorCode.REFUSED_STREAM)]
    counts = []
    for number in (1, 3, 5):
        peer.takers[number].stream.end(b"\x89")
        counts.append(peer.finished)
    assert counts == [0, 0, 1]


def test_a_drained_connection_without_streams_finishes_with_the_answer() -> None:
    peer = ModelPeer()
    peer.connection.drain()
    before = peer.finished
    peer.send(ANSWERED)
    assert (before, peer.finished) == (0, 1)


def test_a_goaway_of_the_peer_belongs_to_no_stream() -> None:
    peer = ModelPeer()
    assert peer.send(write_frame(GOAWAY, 0, 0, bytes(8))) == []
    peer.send(write_frame(GOAWAY, 0, 1, bytes(8)))
    assert peer.goaways == [(0, ErrorCode.PROTOCOL_ERROR)]


def test_what_is_abandoned_is_reset_and_gives_its_window_to_others() -> None:
    peer = ModelPeer(1_000_000)
    peer.open(1)
    peer.open(3)
    for number in (1, 3):
        peer.takers[number].stream.send(bytes(65_535))
    peer.frames = []
    peer.takers[3].stream.abandon(ErrorCode.CANCEL)
    assert peer.frames == [refused(3, ErrorCode.CANCEL)]
    peer.widen(0, 65_535)
    assert 3 not in peer.got
    peer.takers[1].stream.send(bytes(65_535))
    assert len(peer.got[1]) == 2 * 65_535


def test_who_waits_for_a_window_is_told_when_all_has_left() -> None:
    peer = ModelPeer(10)
    peer.open(1)
    taker = peer.takers[1]
    taker.stream.send(bytes(10))
    assert (taker.drains, taker.stream.unsent) == (1, 0)
    taker.stream.send(bytes(5))
    assert (taker.drains, taker.stream.unsent) == (1, 5)
    taker.stream.end(b"\x89")
    peer.widen(1, 4)
    assert (taker.drains, taker.stream.unsent) == (1, 1)
    assert peer.widen(1, 1)[1][:3] == (HEADERS, END_HEADERS | END_STREAM, 1)
