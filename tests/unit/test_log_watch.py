"""A log that is looked at now and then: when its writer counts as dead. No wall clock is asked."""

from tests.fakes.set_clock import SetClock
from tg_gateway.jobs.log_watch import MAX_SEEN_LOGS, SeenLogs


def test_a_log_without_a_new_entry_is_silent_after_its_time() -> None:
    clock = SetClock(100.0)
    seen = SeenLogs(15.0, clock)
    assert not seen.is_silent("a", "1")
    clock.now += 14.9
    assert not seen.is_silent("a", "1")
    clock.now += 0.1
    assert seen.is_silent("a", "1")
    assert not seen.is_silent("b", "1")
    assert not seen.is_silent("a", "2")
    clock.now += 15.0
    assert not seen.is_silent("a", "3")


def test_few_logs_are_remembered() -> None:
    clock = SetClock(100.0)
    seen = SeenLogs(15.0, clock)
    for name in ("a", "b", *map(str, range(MAX_SEEN_LOGS - 2)), "a", "c"):
        assert not seen.is_silent(name, "1")
    clock.now += 15.0
    assert [seen.is_silent(name, "1") for name in "ac"] == [True, True]
    assert not seen.is_silent("b", "1")
