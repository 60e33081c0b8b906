"""The events of an answer -> those from a number on, however they come together."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tg_gateway.dialects import EventCutter

EVENTS = [b"event: e\ndata: %d\n\n" % number for number in range(12)]


@given(st.lists(st.integers(0, len(EVENTS))), st.integers(-1, len(EVENTS) + 1))
def test_any_split_gives_the_same_events(cuts: list[int], after: int) -> None:
    cutter = EventCutter(after)
    places = [0, *sorted(cuts), len(EVENTS)]
    pieces = [cutter.add(b"".join(EVENTS[start:end])) for start, end in pairwise(places)]
    assert b"".join(pieces) == b"".join(EVENTS[after + 1 :])
    assert (cutter.number, cutter.last) == (len(EVENTS), max(after, len(EVENTS) - 1))


def test_each_event_says_its_number() -> None:
    cutter = EventCutter(1, shows=True)
    assert cutter.add(b"".join(EVENTS[:2])) == b""
    assert cutter.add(b"".join(EVENTS[2:4])) == b"id: 2\n" + EVENTS[2] + b"id: 3\n" + EVENTS[3]
