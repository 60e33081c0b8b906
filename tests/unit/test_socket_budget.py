"""A socket's bound: who holds most ends first, and never more is held than it says."""

from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from tg_gateway.websocket.writer import BufferBudget, SocketStream


class Stream(SocketStream):
    """Says once that it was shed."""

    def __init__(self) -> None:
        self.ended = False

    @override
    def shed(self) -> None:
        assert not self.ended
        self.ended = True


def test_the_largest_ends_and_others_go_on() -> None:
    budget = BufferBudget(100)
    small, large, last = Stream(), Stream(), Stream()
    budget.hold(small, 30)
    budget.hold(large, 60)
    budget.hold(last, 10)
    assert not any(stream.ended for stream in (small, large, last))
    budget.hold(small, 31)
    assert (small.ended, large.ended, last.ended) == (False, True, False)
    assert budget.total == 41
    budget.hold(small, 0)
    assert budget.total == 10


def test_one_that_is_over_the_limit_alone_ends() -> None:
    budget = BufferBudget(100)
    alone = Stream()
    budget.hold(alone, 101)
    assert alone.ended
    assert budget.total == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300))))
def test_the_total_is_what_is_held_and_within_the_limit(steps: list[tuple[int, int]]) -> None:
    budget = BufferBudget(1000)
    streams = [Stream() for _ in range(10)]
    held: dict[int, int] = {}
    for number, size in steps:
        if streams[number].ended:
            continue
        held[number] = size
        budget.hold(streams[number], size)
        assert budget.total == sum(size for number, size in held.items() if not streams[number].ended) <= 1000
