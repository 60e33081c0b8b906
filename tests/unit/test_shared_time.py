"""The time of all requestors: the median of the clocks of those that announce themselves."""

import pytest
from structlog.testing import capture_logs

from tests.virtual_time import in_virtual_time
from tg_base.client.shared_time import HEARD_SECONDS, MAX_PROCESSES, SAMPLES, SharedTime


class Clocks:
    """Of one machine: a clock that may be wrong, and one that nobody sets."""

    def __init__(self, wall: float = 1_000_000.0) -> None:
        self.wall = wall
        self.monotonic = 50.0
        self.time = SharedTime(lambda: self.wall, lambda: self.monotonic)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def hear(self, process: str, clock: float, transit: float = 0.0) -> None:
        """An announcement that left when the clock of its process showed that."""
        self.time.note(process, self.wall - clock + transit)


def test_before_anybody_is_heard_it_is_our_own() -> None:
    clocks = Clocks()
    assert clocks.time() == clocks.wall


@pytest.mark.parametrize("wrong", [0.0, 7200.0, -7200.0])
def test_two_requestors_have_one_time_whatever_their_own_clocks_show(wrong: float) -> None:
    clocks = Clocks(1_000_000.0 + wrong)
    for process, ahead in {"a": 0.0, "b": 0.5, "c": 3600.0}.items():
        clocks.hear(process, 1_000_000.0 + ahead)
    # One wrong clock of three moves it by no more than the others differ.
    assert clocks.time() == 1_000_000.5
    clocks.pass_by(3.0)
    assert clocks.time() == 1_000_003.5


def test_a_clock_that_is_set_changes_nothing() -> None:
    clocks = Clocks()
    clocks.hear("a", 1_000_000.0)
    clocks.wall += 86_400.0
    assert clocks.time() == 1_000_000.0
    clocks.hear("a", 1_000_000.0)
    assert clocks.time() == 1_000_000.0


def test_what_was_under_way_for_long_does_not_count() -> None:
    clocks = Clocks()
    for transit in (5.0, 0.01, 9.0):
        clocks.hear("a", clocks.wall, transit)
    assert clocks.time() == pytest.approx(clocks.wall - 0.01)


def test_a_clock_is_called_wrong_only_after_a_second_announcement() -> None:
    """The first one may have waited for a process that starts."""
    for differs, transits in ((False, (6.0, 0.1)), (True, (6.0, 6.0))):
        clocks = Clocks()
        with capture_logs() as logs:
            clocks.hear("a", clocks.wall, transits[0])
            assert not logs
            clocks.hear("a", clocks.wall, transits[1])
        assert [line["event"] for line in logs] == ["clock.differs"] * differs


def test_a_process_that_is_silent_counts_no_longer_and_the_last_one_keeps_the_time() -> None:
    clocks = Clocks()
    clocks.hear("ahead", clocks.wall + 100.0)
    clocks.hear("right", clocks.wall)
    assert clocks.time() == clocks.wall + 50.0
    clocks.pass_by(HEARD_SECONDS + 1)
    clocks.hear("right", clocks.wall)
    assert clocks.time() == clocks.wall
    clocks.wall += 1000.0
    clocks.monotonic += 3600.0
    assert clocks.time() == 1_000_000.0 + HEARD_SECONDS + 1 + 3600.0


def test_a_process_whose_clock_is_set_back_is_believed_after_some_announcements() -> None:
    clocks = Clocks()
    clocks.hear("a", clocks.wall + 100.0)
    for _ in range(SAMPLES):
        clocks.pass_by(1.0)
        clocks.hear("a", clocks.wall)
    assert clocks.time() == clocks.wall


def test_who_is_remembered_is_bounded() -> None:
    clocks = Clocks()
    for number in range(MAX_PROCESSES + 10):
        clocks.hear(str(number), clocks.wall)
    assert len(clocks.time._processes) == MAX_PROCESSES


@in_virtual_time
async def test_it_is_waited_for_no_longer_than_asked() -> None:
    clocks = Clocks()
    await clocks.time.until_known(2.0)
    clocks.hear("a", clocks.wall)
    await clocks.time.until_known(0.0)
