"""Pauses behind lost attempts: they grow to a bound, end before the time to begin is over, and outlive a gateway."""

import pytest

from tg_gateway.jobs import AttemptPauses
from tg_gateway.jobs.pauses import LONGEST_SECONDS

NOW = 1000.0
LATER = 1e9


def choose(attempts: int, draw: float, until: float = LATER) -> float:
    return AttemptPauses(lambda: NOW, lambda: draw).choose(attempts, until) - NOW


def test_pauses_double_up_to_a_bound() -> None:
    assert [choose(number, 1.0) for number in range(1, 11)] == [4, 8, 16, 32, *[LONGEST_SECONDS] * 6]


def test_half_of_a_pause_is_certain_and_the_rest_is_drawn() -> None:
    assert [choose(3, draw) for draw in (0.0, 0.5, 1.0)] == [8, 12, 16]


@pytest.mark.parametrize(("until", "pause"), [(NOW + 100, 32), (NOW + 40, 20), (NOW + 1, 0.5), (NOW, 0), (NOW - 5, 0)])
def test_a_pause_leaves_time_to_begin(until: float, pause: float) -> None:
    assert choose(4, 1.0, until) == pause


@pytest.mark.parametrize(
    ("resumes", "left"),
    [
        (NOW + 3, 3),
        (NOW, 0),
        (0.0, 0),
        # Another machine's clock is wrong, or nobody of ours has written it.
        (NOW + 1e6, LONGEST_SECONDS),
        (float("inf"), LONGEST_SECONDS),
        (float("nan"), 0),
    ],
)
def test_any_gateway_finds_what_is_left_of_a_pause(resumes: float, left: float) -> None:
    assert AttemptPauses(lambda: NOW).measure(resumes) == left


def test_they_differ() -> None:
    pauses = AttemptPauses(lambda: NOW)
    assert len({pauses.choose(3, LATER) for _ in range(10)}) > 1
