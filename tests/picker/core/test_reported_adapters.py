"""Adapters that servers tell of: a bounded number, of which those that are still told stay."""

from tests.picker.core.cases import endpoint, told
from tg_picker.core import AdapterReport, LoadReport, Scheduler
from tg_picker.core.state import MAX_ADAPTERS

SERVERS = (endpoint("a"), endpoint("b"))


def test_names_that_are_told_again_outlast_those_that_were_told_once() -> None:
    scheduler = Scheduler()
    for number in range(3 * MAX_ADAPTERS):
        names = frozenset(("busy", f"x{number}"))
        scheduler.observe(SERVERS[0], LoadReport(float(number), adapters=AdapterReport(slots=2, active=names)))
        assert scheduler.was_told("busy", SERVERS)
    assert scheduler.was_told(f"x{3 * MAX_ADAPTERS - 1}", SERVERS)
    assert not scheduler.was_told("x0", SERVERS)


def test_of_a_server_that_left_nothing_is_kept() -> None:
    scheduler = Scheduler()
    for server in SERVERS:
        scheduler.observe(server, told(slots=2, active="s"))
    scheduler.retain(SERVERS[:1])
    assert scheduler.was_told("s", SERVERS)
    assert not scheduler.was_told("s", SERVERS[1:])
    scheduler.forget_adapter(SERVERS[0], "s", 0.0)
    assert not scheduler.was_told("s", SERVERS)
