"""The rule by which a queued request is taken for lost with a processor that nobody knows any more."""

from collections.abc import Iterable

import pytest

from tests.fakes.set_clock import SetClock
from tg_base.client.membership import Membership
from tg_base.protocol import HeartbeatTiming, Presence

QUEUE = "q"
CAPACITY = 4


def announced(in_flight: int, taken: int, waited: float) -> Presence:
    return Presence("p", (QUEUE,), CAPACITY, in_flight, taken=taken, waited=waited)


def is_stalled(announcements: Iterable[tuple[int, int, float]], *, asked: float = 0.0, silence: float = 0.5) -> bool:
    """Whether a request of that moment is, after announcements at 0, 1, 2 ... seconds and this much silence."""
    clock = SetClock()
    table = Membership(HeartbeatTiming(), clock)
    for second, announcement in enumerate(announcements):
        clock.now = float(second)
        table.update(announced(*announcement))
    clock.now += silence
    return table.is_stalled(QUEUE, asked)


@pytest.mark.parametrize(
    ("announcements", "expected"),
    [
        pytest.param([(0, 7, 0.0)] * 5, True, id="free and taking nothing"),
        pytest.param([(0, 7, 0.0)] * 3, False, id="not for long yet"),
        pytest.param([(CAPACITY, 7, 0.0)] * 9, False, id="full"),
        pytest.param([(1, second, float(second)) for second in range(9)], False, id="slow, in the order of the queue"),
        pytest.param([(1, second, 0.1) for second in range(9)], True, id="taking what came later, for long"),
        pytest.param([(1, second, 0.1) for second in range(4)], False, id="taking what came later, just now"),
        pytest.param([(CAPACITY, second, 0.1) for second in range(9)], True, id="full, but taking what came later"),
        pytest.param(
            [(1, second, 1e6) for second in range(9)], False, id="taking what waited for nobody knows how long"
        ),
        pytest.param([(0, 7, 0.0)] * 3 + [(CAPACITY, 9, 2.0)] + [(0, 9, 0.0)] * 2, False, id="full in between"),
    ],
)
def test_passed_over(announcements: list[tuple[int, int, float]], expected: bool) -> None:
    assert is_stalled(announcements) is expected


@pytest.mark.parametrize(("silence", "expected"), [(1.4, True), (1.6, False), (3.4, False)])
def test_one_whose_heartbeat_is_overdue_is_not_taken_for_idle(silence: float, expected: bool) -> None:
    assert is_stalled([(0, 7, 0.0)] * 5, silence=silence) is expected
