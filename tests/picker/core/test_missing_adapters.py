"""A server that answered 404 for an adapter is passed over, until something shows that it has it."""

from collections.abc import Callable
from random import Random

import pytest

from bench.instances.baselines.policies import ALL_POLICIES, make_policy
from tests.picker.core.cases import endpoint, request
from tg_picker.core import (
    AdapterReport,
    Choice,
    FlowControl,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Pick,
    QueueLimits,
    Scheduler,
)
from tg_picker.core.state.missing_adapters import MAX_ADAPTERS, MISSING_SECONDS, MissingAdapters

POOL = tuple(map(endpoint, "abc"))
LACKING, HAVING = POOL[:2], POOL[2]


def _pick(control: FlowControl, now: float, adapter: str | None = "x") -> Pick | None:
    made = control.submit("p", request(adapter), lambda: POOL, now).made
    assert made is None or isinstance(made, Pick)
    return made


def _control(policy: str = "predicted-wait", limits: QueueLimits | None = None) -> FlowControl:
    """A pool whose last server alone has x, as the others have said."""
    scheduler = Scheduler(make_policy(policy), random=Random(0))
    control = FlowControl(scheduler, limits or QueueLimits())
    for each in POOL:
        scheduler.server(each)
    for each in LACKING:
        scheduler.forget_adapter(each, "x", 0.0)
    return control


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_the_server_that_has_it_is_found_by_every_policy(policy: str) -> None:
    control = _control(policy)
    picked = [_pick(control, 0.1 + at / 10) for at in range(9)]
    assert {each.endpoint.name for each in picked if each} == {"c"}
    # What it is not asked for, it is picked for as before.
    others = [_pick(control, 1.1 + at / 10, None) for at in range(30)]
    assert {each.endpoint.name for each in others if each} & {"a", "b"}


def test_a_request_waits_for_the_server_that_has_it_and_not_for_an_idle_one() -> None:
    control = _control(limits=QueueLimits(max_requests=1))
    first = _pick(control, 0.1)
    assert first is not None
    assert _pick(control, 0.2) is None
    other = _pick(control, 0.3, "y")
    assert other is not None
    assert other.endpoint in LACKING


def test_where_nobody_has_it_somebody_says_so() -> None:
    control = _control()
    control.scheduler.forget_adapter(HAVING, "x", 0.0)
    assert control.scheduler.missing.without(POOL, "x") is POOL
    assert _pick(control, 0.1) is not None


def _answer(scheduler: Scheduler) -> None:
    scheduler.place(request("x"), Choice(scheduler.server(LACKING[0]), ()), 1.0).placement.first_token(1.1)


def _answer_whole(scheduler: Scheduler) -> None:
    asked = InstanceRequest("base", "x", streamed=False)
    placement = scheduler.place(asked, Choice(scheduler.server(LACKING[0]), ()), 1.0).placement
    placement.finish(InstanceUsage(output_tokens=3), 1.1)


def _fail(scheduler: Scheduler) -> None:
    scheduler.place(request("x"), Choice(scheduler.server(LACKING[0]), ()), 1.0).placement.finish(None, 1.1)


def _tell(at: float, adapters: AdapterReport) -> Callable[[Scheduler], None]:
    return lambda scheduler: scheduler.observe(LACKING[0], LoadReport(at, adapters=adapters))


ACTIVE, IDLE = AdapterReport(2, frozenset("x")), AdapterReport(2, frozenset(), resident={"x": "gpu"})


@pytest.mark.parametrize(
    ("show", "is_found"),
    [
        (_answer, True),
        (_answer_whole, True),
        (_fail, False),
        (_tell(1.0, ACTIVE), True),
        (_tell(1.0, IDLE), True),
        (_tell(1.0, AdapterReport(2, frozenset("y"))), False),
        # Seen before the 404.
        (_tell(-1.0, ACTIVE), False),
        (lambda scheduler: scheduler.restarted(LACKING[0]), True),
        (lambda scheduler: scheduler.retain(POOL[1:]), True),
        (lambda scheduler: scheduler.pick(request(), POOL, MISSING_SECONDS), False),
        (lambda scheduler: scheduler.pick(request(), POOL, MISSING_SECONDS + 1), True),
    ],
)
def test_what_ends_it(show: Callable[[Scheduler], None], is_found: bool) -> None:
    control = _control()
    show(control.scheduler)
    assert (LACKING[0] in control.scheduler.missing.without(POOL, "x")) is is_found


def test_names_of_clients_are_bounded() -> None:
    missing = MissingAdapters()
    for number in range(MAX_ADAPTERS + 1):
        missing.note(POOL[0].address, f"a{number}", 0.0)
    assert missing.without(POOL, "a0") is POOL
    assert missing.without(POOL, f"a{MAX_ADAPTERS}") == [*POOL[1:]]
