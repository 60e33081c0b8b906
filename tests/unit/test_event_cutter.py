"""Pieces of a stream of events -> the events from a number on, however the stream is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_gateway.dialects.responses.event_cutter import EventCutter

EVENTS = [b"event: e\ndata: %d\n\n" % number for number in range(12)]


@given(st.lists(st.integers(0, len(b"".join(EVENTS)))), st.integers(-1, len(EVENTS) + 1))
def test_any_split_gives_the_same_events(cuts: list[int], after: int) -> None:
    whole, cutter = b"".join(EVENTS), EventCutter(after)
    places = [0, *sorted(cuts), len(whole)]
    pieces = [cutter.add(whole[start:end]) for start, end in pairwise(places)]
    assert b"".join(pieces) == b"".join(EVENTS[after + 1 :])
    assert all(piece == b"" or piece.endswith(b"\n\n") for piece in pieces)
    assert cutter.number == len(EVENTS)


@pytest.mark.parametrize("piece", [b"", b"event: e\ndata: 1", b"event: e\ndata: 1\n"])
def test_what_is_not_whole_waits(piece: bytes) -> None:
    cutter = EventCutter(-1)
    assert (cutter.add(piece), cutter.number) == (b"", 0)
