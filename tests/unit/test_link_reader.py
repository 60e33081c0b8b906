"""The receiving end of a link: any order, any repetition, any loss that is resent gives the same messages."""

from hypothesis import given
from hypothesis import strategies as st

from tg_base.client.inbox import MAX_AHEAD_MESSAGES, ReorderBuffer


@given(st.lists(st.integers(0, 30), max_size=120))
def test_each_message_once_and_in_order(order: list[int]) -> None:
    reader = ReorderBuffer[bytes]()
    arrivals = [*order, *range(31)]
    bodies = [body for seq in arrivals for body in reader.take(seq, b"%d" % seq)]
    assert bodies == [b"%d" % seq for seq in range(31)]
    assert not reader.gap


def test_a_hole_is_known_at_once_and_by_announcement() -> None:
    reader = ReorderBuffer[bytes]()
    assert list(reader.take(0, b"a")) == [b"a"]
    assert not reader.gap
    assert list(reader.take(2, b"c")) == []
    assert reader.gap
    assert reader.expected == 1
    assert list(reader.take(1, b"b")) == [b"b", b"c"]
    assert not reader.gap
    reader.on_announced(3)
    assert reader.gap


def test_a_number_out_of_all_reason_is_not_kept() -> None:
    reader = ReorderBuffer[bytes]()
    assert list(reader.take(MAX_AHEAD_MESSAGES + 1, b"x")) == []
    assert list(reader.take(-1, b"x")) == []
    assert [body for seq in range(MAX_AHEAD_MESSAGES + 1) for body in reader.take(seq, b"m")] == [b"m"] * (
        MAX_AHEAD_MESSAGES + 1
    )
    assert reader.expected == MAX_AHEAD_MESSAGES + 1


def test_a_message_that_fails_takes_none_behind_it_along() -> None:
    reader = ReorderBuffer[bytes]()
    for seq in (1, 2, 3):
        assert list(reader.take(seq, b"%d" % seq)) == []
    # Who handles the first one raises, and looks at no other.
    assert next(iter(reader.take(0, b"0"))) == b"0"
    assert list(reader.take(4, b"4")) == [b"1", b"2", b"3", b"4"]
