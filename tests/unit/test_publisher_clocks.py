"""What ages tell of two clocks: believed when they agree, doubted when one message alone says it."""

import pytest

from tg_base.protocol import PublisherClocks
from tg_base.protocol.clocks import JUMP_SECONDS, TRUSTED_SECONDS, WINDOW_SECONDS


class Heard:
    """Heartbeats a second apart, and the clock by which they come."""

    def __init__(self, *ages: float) -> None:
        self.now = 0.0
        self.clocks = PublisherClocks(lambda: self.now)
        self.hear(*ages)

    def hear(self, *ages: float) -> None:
        for age in ages:
            self.now += 1.0
            self.clocks.note_heartbeat("p", age)

    def delay(self, age: float) -> float | None:
        return self.clocks.delays("p", age)[0]


@pytest.mark.parametrize("ahead", [0.0, 600.0, -600.0])
def test_what_a_message_waited_is_known_whatever_the_difference_of_the_clocks(ahead: float) -> None:
    heard = Heard(*(ahead + way for way in (0.011, 0.01, 0.03)))
    assert heard.delay(ahead + 0.01) == pytest.approx(0.0)
    assert heard.delay(ahead + 2.01) == pytest.approx(2.0)
    assert heard.delay(ahead + 0.002) == 0.0


@pytest.mark.parametrize("ages", [(), (0.01,), (0.01, 0.01), (2.3, 1.3, 0.3), (0.01, 0.5, 0.9)])
def test_few_heartbeats_or_such_that_differ_prove_nothing(ages: tuple[float, ...]) -> None:
    assert Heard(*ages).delay(0.01) is None


@pytest.mark.parametrize("ahead", [0.0, 600.0, -600.0])
def test_one_heartbeat_tells_what_a_message_waited_at_least(ahead: float) -> None:
    heard = Heard(ahead + 0.3)
    assert heard.clocks.delays("p", ahead + 9.3)[1] == pytest.approx(9.0)
    assert heard.clocks.delays("p", ahead + 0.1)[1] == 0.0
    assert heard.clocks.delays("never heard", ahead + 9.3)[1] == 0.0


def test_what_was_held_up_is_forgotten_when_undisturbed_ones_come() -> None:
    heard = Heard(2.3, 1.3, 0.3, 0.01, 0.01, 0.01)
    assert heard.delay(0.41) == pytest.approx(0.4)


def test_a_clock_that_was_set_shows_by_the_next_heartbeats() -> None:
    heard = Heard(0.01, 0.01, 0.01)
    heard.hear(86_400.01)
    assert heard.delay(86_400.01) is None
    heard.hear(86_400.01, 86_400.01)
    assert heard.delay(86_401.01) == pytest.approx(1.0)


def test_a_very_old_message_is_doubted_where_its_publisher_was_not_heard_lately() -> None:
    heard = Heard(0.01, 0.01, 0.01)
    assert heard.delay(0.01 + 2 * JUMP_SECONDS) == pytest.approx(2 * JUMP_SECONDS)
    heard.now += 2 * TRUSTED_SECONDS
    assert heard.delay(0.01 + 2 * JUMP_SECONDS) is None
    assert heard.clocks.delays("p", 0.01 + 2 * JUMP_SECONDS)[1] == 0.0
    assert heard.delay(0.51) == pytest.approx(0.5)


def test_a_drift_is_followed() -> None:
    heard = Heard(*(0.01 + 0.001 * second for second in range(int(5 * WINDOW_SECONDS))))
    assert heard.delay(0.01 + 0.001 * heard.now) == pytest.approx(0.0, abs=0.001 * 2.5 * WINDOW_SECONDS)
