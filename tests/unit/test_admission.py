"""The rule by which a request waits or is refused, and when it should come back."""

from typing import Any

import pytest

from tg_base.client.admission import (
    ASSUMED_CAPACITY_REQUESTS,
    DEFAULT_RETRY_AFTER_SECONDS,
    MIN_QUEUE_REQUESTS,
    AdmissionControl,
)
from tg_base.client.membership import Membership
from tg_base.config import ConfigWatcher
from tg_base.protocol import HeartbeatTiming, LinkReport, Presence, Route
from tg_flow.providers.registry import outline_provider
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import RateLimited


def admit(admission: AdmissionControl, route: Route[Any, Any]) -> None:
    admission.check(route, admission.find(route.request))


def route(queue: str = "q", bound: int | None = None) -> Route[Any, Any]:
    return Route("default", TEXT_COMPLETION, queue, "unused", queue=bound)


def presence(capacity: int, *, running: int = 0, name: str = "p", **more: Any) -> Presence:
    said: dict[str, Any] = {"queues": ("q",), "capacity": capacity, "in_flight": running}
    return Presence(name, **(said | more))


def admission(*processors: Presence, ours: int = 0) -> AdmissionControl:
    """Ours: the requests that each of them runs for us."""
    table = Membership(HeartbeatTiming(), lambda: 0.0)
    for processor in processors:
        table.update(processor)
        table.note(LinkReport(processor.processor, 0, 0, None, {processor.processor: ours}))
    return AdmissionControl(table)


def taken(admission: AdmissionControl, asked: Route[Any, Any]) -> int:
    """How many requests are let in."""
    for number in range(10_000):
        try:
            admit(admission, asked)
        except RateLimited:
            return number
        admission.unanswered[asked.request] += 1
    raise AssertionError("there is no bound")


@pytest.mark.parametrize(
    ("processors", "ours", "bound", "expected"),
    [
        ([presence(160)], 0, None, 160 + MIN_QUEUE_REQUESTS),
        ([presence(4000)], 0, None, 4500),
        ([presence(4)], 0, None, 4 + MIN_QUEUE_REQUESTS),
        ([presence(4)], 0, 0, 4),
        ([presence(4)], 0, 3, 7),
        ([presence(4), presence(8, name="p2")], 0, 3, 15),
        ([presence(4), presence(8, name="p2", leaving=True)], 0, 3, 7),
        ([presence(4), presence(8, name="p2", queues=("other",))], 0, 3, 7),
        ([presence(10, running=6)], 6, 3, 13),
        ([presence(10, running=6)], 0, 3, 7),
        ([presence(10, running=10)], 2, 0, 2),
        ([presence(10, running=10)], 0, 3, 3),
        ([presence(10, running=10)], 0, 0, 0),
        ([], 0, None, ASSUMED_CAPACITY_REQUESTS + MIN_QUEUE_REQUESTS),
        ([], 0, 5, ASSUMED_CAPACITY_REQUESTS + 5),
    ],
)
def test_capacity_that_others_leave_and_so_many_more(
    processors: list[Presence], ours: int, bound: int | None, expected: int
) -> None:
    assert taken(admission(*processors, ours=ours), route(bound=bound)) == expected


async def test_the_built_in_model_runs_16_requests_and_lets_256_wait() -> None:
    """What somebody gets who sets nothing."""
    config = ConfigWatcher().config
    [(name, model)] = config.models.items()
    [asked] = config.routes("text-completion")
    outline = await outline_provider(model.provider, name, model.options)
    full = admission(presence(outline.capacity, queues=(asked.request,), seconds=2.0))
    assert (outline.capacity, taken(full, asked)) == (16, 16 + 256)
    with pytest.raises(RateLimited) as refused:
        admit(full, asked)
    assert refused.value.retry_after == pytest.approx(257 * 2 / 16, abs=1e-3)


def test_flows_of_one_model_share_its_capacity() -> None:
    both = admission(presence(4, queues=("q", "r")))
    both.unanswered["r"] = 3
    assert taken(both, route(bound=2)) == 3
    with pytest.raises(RateLimited):
        admit(both, route("r", bound=2))


@pytest.mark.parametrize(
    ("processor", "asked", "expected"),
    [
        (presence(10, seconds=5.0), 13, (3 + 1) * 5 / 10),
        (presence(10, seconds=5.0, running=8), 5, (3 + 1) * 5 / 2),
        (presence(10, seconds=5.0, running=10), 3, (3 + 1) * 5),
        (presence(10), 13, DEFAULT_RETRY_AFTER_SECONDS),
    ],
)
def test_come_back_when_as_many_are_answered_as_wait(processor: Presence, asked: int, expected: float) -> None:
    full = admission(processor)
    full.unanswered["q"] = asked
    with pytest.raises(RateLimited) as refused:
        admit(full, route(bound=3))
    assert refused.value.retry_after == pytest.approx(expected)


def test_times_count_by_capacity_and_the_unknown_not_at_all() -> None:
    processors = presence(30, seconds=2.0), presence(10, seconds=6.0, name="slow"), presence(40, name="new")
    full = admission(*processors)
    full.unanswered["q"] = 80
    with pytest.raises(RateLimited) as refused:
        admit(full, route(bound=0))
    assert refused.value.retry_after == pytest.approx(3.0 / 80, abs=1e-3)


def test_what_all_processors_of_a_queue_have_is_announced_for_it() -> None:
    table = Membership(HeartbeatTiming(), lambda: 0.0)
    it = AdmissionControl(table)
    assert not it.find("q").served
    table.update(presence(4, features=("n", "tools"), request_bytes=9))
    assert it.find("q").served
    assert (it.find("q").features, it.find("q").request_bytes) == (frozenset({"n", "tools"}), 9)
    table.update(presence(4, name="p2", features=("n",), request_bytes=7))
    assert (it.find("q").features, it.find("q").request_bytes) == (frozenset({"n"}), 7)
    table.update(presence(4, name="p2", leaving=True))
    assert it.find("q").request_bytes == 9
    table.update(presence(4, leaving=True))
    assert not it.find("q").served


def test_a_processor_that_died_counts_no_longer() -> None:
    now = 0.0
    timing = HeartbeatTiming()
    table = Membership(timing, lambda: now)
    it = AdmissionControl(table)
    table.update(presence(4, features=("n",)))
    table.update(presence(8, name="p2"))
    assert (it.find("q").capacity, it.find("q").features) == (12, frozenset())
    now = timing.dead_after
    table.update(presence(4, features=("n",)))
    now += timing.tick
    assert [*table.expire()] == ["p2"]
    assert (it.find("q").capacity, it.find("q").features) == (4, frozenset({"n"}))
    now += timing.dead_after
    assert [*table.expire()] == ["p"]
    assert not it.find("q").served
