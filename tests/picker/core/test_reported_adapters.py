"""Adapters that servers tell of: a bounded number, of which those that are still told stay."""

from tests.picker.core.cases import endpoint, told
from tg_picker.core import Scheduler
from tg_picker.core.state.reported_adapters import MAX_ADAPTERS, ReportedAdapters

SERVERS = (endpoint("a"), endpoint("b"))


def test_names_that_are_told_again_outlast_those_that_were_told_once() -> None:
    adapters = ReportedAdapters()
    for number in range(3 * MAX_ADAPTERS):
        adapters.note("a:8000", ("busy", f"x{number}"))
        assert adapters.has("busy", SERVERS)
    assert adapters.has(f"x{3 * MAX_ADAPTERS - 1}", SERVERS)
    assert not adapters.has("x0", SERVERS)


def test_of_a_server_that_left_nothing_is_kept() -> None:
    scheduler = Scheduler()
    for server in SERVERS:
        scheduler.observe(server, told(slots=2, active="s"))
    scheduler.retain(SERVERS[:1])
    assert scheduler.told.has("s", SERVERS)
    assert not scheduler.told.has("s", SERVERS[1:])
    scheduler.forget_adapter(SERVERS[0], "s", 0.0)
    assert not scheduler.told.has("s", SERVERS)
