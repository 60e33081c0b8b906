"""Windows, both ways: a peer that counts them itself sees none exceeded, none forgotten, and all its data accepted."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envoy.http2_model import ModelPeer
from tg_gateway.envoy.http2_connection import CONNECTION_WINDOW
from tg_gateway.envoy.http2_frames import (
    DATA,
    END_STREAM,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    RST_STREAM,
    WINDOW_UPDATE,
    ErrorCode,
    write_frame,
)
from tg_gateway.envoy.http2_stream import STREAM_WINDOW

STREAMS = (1, 3, 5)
RESERVED = 2**31
SENDING = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(STREAMS), st.integers(1, 70_000)),
    st.tuples(st.just("widen"), st.sampled_from((0, *STREAMS)), st.integers(1, 70_000)),
    st.tuples(st.just("initial"), st.just(0), st.integers(0, 100_000)),
    st.tuples(st.sampled_from(("pause", "resume")), st.just(0), st.just(0)),
)


@given(initial=st.sampled_from((0, 1, 2, 65_535, 200_000)), steps=st.lists(SENDING, max_size=30))
@settings(max_examples=300, deadline=None)
def test_as_much_is_sent_as_the_windows_allow(initial: int, steps: list[tuple[str, int, int]]) -> None:
    peer, wanted, is_paused = ModelPeer(initial), Counter[int](), False
    for number in STREAMS:
        peer.open(number)
    for what, number, size in steps:
        if what == "send":
            wanted[number] += size
            peer.takers[number].stream.send(bytes(size))
        elif what == "widen":
            peer.widen(number, size)
        elif what == "initial":
            peer.set_initial(size)
        elif what == "pause":
            peer.connection.pause()
            is_paused = True
        else:
            peer.connection.resume()
            is_paused = False
        for each in STREAMS:
            left = wanted[each] - len(peer.got.get(each, b""))
            assert peer.takers[each].stream.unsent == left
            # Nothing waits that could go.
            assert not left or is_paused or peer.may_get[each] <= 0 or peer.may_get[0] == 0
    peer.connection.resume()
    for number in (0, *STREAMS):
        peer.widen(number, 10_000_000)
    assert {number: len(body) for number, body in peer.got.items()} == dict(wanted)


RECEIVING = st.tuples(
    st.sampled_from(STREAMS), st.integers(0, 16_000), st.one_of(st.none(), st.integers(0, 255)), st.booleans()
)


@given(steps=st.lists(RECEIVING, min_size=1, max_size=20), times=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_what_was_taken_may_come_again(steps: list[tuple[int, int, int | None, bool]], times: int) -> None:
    peer, owed, sent = ModelPeer(), Counter[int](), Counter[int]()
    for number in STREAMS:
        peer.open(number)
    for number, size, padding, takes in steps * times:
        owed[number] += size
        sent[number] += size
        peer.data(number, bytes(size), padding)
        assert peer.reset_code is None
        if takes or owed[number] > STREAM_WINDOW // 4:
            peer.takers[number].stream.take(owed.pop(number))
        # At least a quarter of a window is open, whatever the padding.
        assert peer.may_send[number] >= STREAM_WINDOW // 4
        assert peer.may_send[0] > CONNECTION_WINDOW // 2
        assert peer.may_send[number] <= STREAM_WINDOW
        assert peer.may_send[0] <= CONNECTION_WINDOW
    assert {number: len(taker.body) for number, taker in peer.takers.items() if taker.body} == {
        number: size for number, size in sent.items() if size
    }


def test_a_streams_window_may_be_filled_and_not_exceeded() -> None:
    peer = ModelPeer()
    peer.open(1)
    for _ in range(STREAM_WINDOW // MAX_FRAME_BYTES):
        assert peer.data(1, bytes(MAX_FRAME_BYTES)) == []
    assert peer.may_send[1] == 0
    peer.data(1, b"x")
    assert peer.reset_code == ErrorCode.FLOW_CONTROL_ERROR
    assert peer.takers[1].was_reset
    assert len(peer.takers[1].body) == STREAM_WINDOW


def test_a_window_that_is_given_back_may_be_filled_again_and_not_exceeded() -> None:
    peer = ModelPeer()
    peer.open(1)
    # Several times what the connection may have on its way.
    for _ in range(4 * CONNECTION_WINDOW // STREAM_WINDOW):
        assert CONNECTION_WINDOW // 2 < peer.may_send[0] <= CONNECTION_WINDOW
        while peer.may_send[1]:
            peer.data(1, bytes(min(MAX_FRAME_BYTES, peer.may_send[1])))
        peer.takers[1].stream.take(STREAM_WINDOW)
        assert peer.may_send[1] == STREAM_WINDOW
    while peer.may_send[1]:
        peer.data(1, bytes(MAX_FRAME_BYTES))
    peer.data(1, b"x")
    assert peer.reset_code == ErrorCode.FLOW_CONTROL_ERROR


def test_the_window_of_padding_is_given_back() -> None:
    peer = ModelPeer()
    peer.open(1)
    for _ in range(2 * STREAM_WINDOW // 256):
        peer.data(1, b"x", 254)
        assert peer.may_send[1] >= STREAM_WINDOW // 4
    assert len(peer.takers[1].body) == 2 * STREAM_WINDOW // 256


def test_no_window_is_opened_for_what_has_ended() -> None:
    peer = ModelPeer()
    for number in (1, 3):
        peer.open(number)
        for _ in range(40):
            peer.data(number, bytes(MAX_FRAME_BYTES))
    peer.data(1, b"", flags=END_STREAM)
    peer.send(write_frame(RST_STREAM, 0, 3, bytes(4)))
    assert peer.takers[3].was_reset
    peer.frames = []
    for taker in peer.takers.values():
        taker.stream.take(40 * MAX_FRAME_BYTES)
    assert peer.frames == []


def test_a_window_may_be_as_wide_as_is_allowed() -> None:
    peer = ModelPeer()
    peer.open(1)
    assert peer.widen(1, MAX_WINDOW - 65_535) == []
    assert peer.widen(0, MAX_WINDOW - 65_535) == []
    peer.widen(1, 1)
    assert peer.reset_code == ErrorCode.FLOW_CONTROL_ERROR
    peer.widen(0, 1)
    assert peer.goaways == [(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_an_initial_window_may_be_as_wide_as_is_allowed() -> None:
    peer = ModelPeer()
    assert peer.set_initial(MAX_WINDOW) == [(4, 1, 0, b"")]
    peer.set_initial(MAX_WINDOW + 1)
    assert peer.goaways == [(0, ErrorCode.FLOW_CONTROL_ERROR)]


def test_reserved_bits_mean_nothing() -> None:
    peer = ModelPeer(0)
    peer.open(1)
    peer.takers[1].stream.send(b"abc")
    peer.may_get[1] += 3
    peer.send(write_frame(WINDOW_UPDATE, 0, RESERVED + 1, (RESERVED + 3).to_bytes(4)))
    assert peer.got == {1: b"abc"}
    peer.send(write_frame(DATA, 0, RESERVED + 1, b"on"))
    assert peer.takers[1].body == b"on"


def test_those_that_wait_for_the_connection_go_on_in_their_order() -> None:
    peer = ModelPeer(1_000_000)
    for number in STREAMS:
        peer.open(number)
    for number in STREAMS:
        peer.takers[number].stream.send(bytes(100_000))
    peer.widen(0, 34_465)
    assert peer.got == {1: bytes(100_000)}
    peer.widen(0, 100_000)
    assert peer.got == {1: bytes(100_000), 3: bytes(100_000)}
    peer.widen(0, 1)
    assert peer.got[5] == b"\0"


def test_a_setting_after_the_window_does_not_change_it() -> None:
    peer = ModelPeer(0)
    peer.open(1)
    peer.takers[1].stream.send(bytes(100))
    peer.may_get[1] = 10
    peer.send(write_frame(4, 0, 0, b"\x00\x04" + (10).to_bytes(4) + b"\x00\x05" + (16_384).to_bytes(4)))
    assert len(peer.got[1]) == 10


@pytest.mark.parametrize("order", [(5, 10), (10, 5)])
def test_of_two_initial_windows_in_a_frame_the_last_one_counts(order: tuple[int, int]) -> None:
    peer = ModelPeer(0)
    peer.open(1)
    peer.takers[1].stream.send(bytes(100))
    peer.may_get[1] = order[1]
    peer.send(write_frame(4, 0, 0, b"".join(b"\x00\x04" + size.to_bytes(4) for size in order)))
    assert len(peer.got[1]) == order[1]
