"""Dispatch now, wait, or refuse: decisions by hand, on a clock of their own, with the real scheduler."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.picker.core.cases import endpoint
from tests.picker.core.test_accounting import NOTHING, counters
from tests.picker.core.waiting_world import FIRST, POOL, World
from tg_picker.core import (
    BandLimits,
    Endpoint,
    InstanceRequest,
    Objective,
    Pick,
    QueueLimits,
    Waiting,
)
from tg_picker.core.queue.capacity import ELSEWHERE


def test_a_request_waits_for_a_release_and_bands_are_strict() -> None:
    world = World()
    for name, priority in (("r1", 0), ("r2", 0), ("shed", -1), ("low", 0), ("high", 9), ("low2", 0), ("high2", 9)):
        world.ask(name, priority)
    assert world.control.waiting == {"p": {9: 2, 0: 2, -1: 1}}
    while world.placements:
        world.finish()
    assert world.order == ["r1", "r2", "high", "high2", "low", "low2", "shed"]
    assert (world.control.waiting, world.control.next_expiry) == ({}, None)
    assert [counters(world.scheduler.server(each)) for each in POOL] == [NOTHING] * 2


def test_who_may_not_wait_is_told_why() -> None:
    world = World(QueueLimits(2, max_requests=1, max_bytes=9, bands=(BandLimits(5, 0),)))
    for name in ("r1", "r2", "w1", "w2"):
        world.ask(name)
    world.ask("w1")
    world.ask("shed", -1)
    world.ask("five", 5, objective={"first_token": 0.1})
    world.ask("large", 9, size=10)
    world.ask("high", 9)
    assert world.refused == [
        "w1 429 queue-full",
        "shed 429 saturated",
        "five 429 objective-out-of-reach",
        "large 429 queue-full",
        "w2 429 displaced",
    ]


def test_requests_wait_for_the_first_server_of_an_empty_pool() -> None:
    world = World(QueueLimits(max_requests=1, max_seconds=5.0), pool=())
    world.ask("shed", -1)
    world.ask("first")
    world.now = 1.0
    world.ask("high", 9)
    world.control.serve(world.now)
    assert world.control.waiting == {"p": {9: 1, 0: 1}}
    world.pool = POOL[:1]
    world.control.serve(world.now)
    assert world.order == ["high"]
    world.pool = ()
    world.now = 5.0
    world.control.serve(world.now)
    assert world.refused == ["shed 503 no-endpoints", "first 503 no-endpoints"]


def test_two_pools_with_one_server_count_each_other_s_requests() -> None:
    world = World(pool=POOL[:1])
    world.ask("first")
    waits = world.control.submit("other", InstanceRequest(), lambda: (Endpoint(POOL[0].address, "b"),), world.now)
    assert (waits.made, world.control.waiting) == (None, {"other": {0: 1}})
    world.finish()
    assert isinstance(waits.made, Pick)
    assert world.scheduler.server(POOL[0]).requests == 1


def test_none_waits_for_a_server_where_none_may() -> None:
    world = World(QueueLimits(0), pool=())
    world.ask("r")
    assert world.refused == ["r 503 no-endpoints"]


def test_nobody_is_placed_after_he_has_waited_long_enough() -> None:
    world = World(QueueLimits(max_requests=1, max_seconds=5.0))
    for name in ("r1", "r2", "w1"):
        world.ask(name)
    world.now = 1.0
    world.ask("w2")
    assert world.control.next_expiry == 5.0
    world.now = 5.0
    world.finish()
    assert world.refused == ["w1 429 expired"]
    assert world.order == ["r1", "r2", "w2"]


def test_a_request_may_wait_shorter_than_the_others() -> None:
    world = World(QueueLimits(max_requests=1, max_seconds=5.0))
    for name, most in (("r1", None), ("r2", None), ("short", 1.0), ("long", 60.0)):
        world.ask(name, max_wait=most)
    for world.now in (1.0, 5.0):
        world.control.serve(world.now)
    assert world.refused == ["short 429 expired", "long 429 expired"]


def test_what_servers_tell_of_their_queue_is_room_or_none() -> None:
    world = World(QueueLimits(max_queued=2))
    world.tell(2, 2)
    world.ask("waits")
    assert world.order == []
    world.tell(2, 1)
    world.control.serve(world.now)
    assert world.order == ["waits"]
    # A server that tells nothing has room.
    world.now = 10.0
    world.ask("old news")
    assert world.order == ["waits", "old news"]


def test_of_a_burst_between_two_looks_most_waits_here() -> None:
    """A queue that was empty when it was looked at holds two of all beyond the sixteen that probably begin at once."""
    world = World(QueueLimits(max_queued=2))
    world.tell(0, 0)
    for _ in range(100):
        world.ask("each")
    assert len(world.order) == 2 * (16 + 2)


def test_a_promise_that_is_kept_needs_no_short_queue() -> None:
    world = World(QueueLimits(max_queued=1))
    world.tell(3, 3)
    world.ask("far", objective=FIRST)
    world.ask("near", objective=Objective(first_token=0.01))
    world.ask("none")
    assert world.order == ["far"]


@pytest.mark.parametrize(("priority", "server"), [(0, "a"), (1, "b")])
def test_who_goes_before_others_may_take_the_server_that_keeps_his_promise(priority: int, server: str) -> None:
    world = World(QueueLimits())
    for address, tokens in (("a", 50_000), ("b", 10), ("b", 10)):
        world.pool = (endpoint(address),)
        world.ask("runs", prompt_tokens=tokens)
        if tokens == 10:
            world.placements[-1].first_token(0.0)
    world.pool = POOL
    made = world.ask("asks", priority, objective=FIRST).made
    assert isinstance(made, Pick)
    assert made.endpoint.name == server
    assert (ELSEWHERE in made.reasons) == (server == "b")


def test_other_servers_other_lanes() -> None:
    world = World()
    world.pool = (Endpoint("a:1", models=("x",)), Endpoint("b:1", models=("y",)))
    for name, model in (("x1", "x"), ("x2", "x"), ("y1", "y")):
        world.ask(name, model=model)
    assert world.order == ["x1", "y1"]
    world.ask("z", model="z")
    assert world.refused == ["z 404 model-not-found"]


def test_without_a_base_model_any_server_will_do() -> None:
    world = World()
    world.pool = (Endpoint("a:1", models=("x",)), Endpoint("b:1", models=("y",)))
    for name in ("1", "2", "3"):
        world.ask(name, adapter="t")
    assert world.order == ["1", "2"]
    world.finish()
    assert world.order == ["1", "2", "3"]


@pytest.mark.parametrize("first", ["heavy", "narrow"])
def test_a_flow_that_may_go_to_fewer_servers_has_its_turns(first: str) -> None:
    world = World()
    pools = {"heavy": POOL, "narrow": POOL[1:]}

    def ask(name: str) -> None:
        world.pool = pools[name]
        # Each keeps its servers, also when they are asked for later.
        world.control.submit(
            "p", InstanceRequest(prompt_tokens=10, flow=name), lambda: pools[name], world.now
        ).on_made = lambda made: world.note(name, made)

    for _ in POOL:
        world.ask("before")
    for name in (first, *pools):
        for _ in range(4):
            ask(name)
    for _ in range(8):
        world.finish()
        ask("heavy")
    assert world.order[2:].count("narrow") >= 3


EVENTS = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "finish", "leave", "tell", "wait", "empty", "fill"]),
    st.integers(-1, 2),
    st.integers(0, 9),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens_each_request_is_decided_once(events: list[tuple[str, int, int]]) -> None:
    limits = QueueLimits(4, max_requests=2, max_seconds=3.0, sheddable=True)
    world = World(limits)
    asked: list[Waiting] = []
    left: set[int] = set()
    for event, priority, number in events:
        world.now += number / 10
        if event == "ask":
            asked.append(world.ask(f"{number % 3}", priority, objective=FIRST if number % 2 else None))
        elif event == "finish" and world.placements:
            world.finish()
        elif event == "leave" and asked and asked[number % len(asked)].made is None:
            left.add(number % len(asked))
            world.control.leave("p", asked[number % len(asked)], world.now)
            asked.pop(number % len(asked))
        elif event == "tell":
            world.pool = POOL
            world.tell(number, number // 2)
        elif event in {"empty", "fill"}:
            world.pool = POOL if event == "fill" else ()
        world.control.serve(world.now)
        open_ones = [each for each in asked if each.made is None]
        assert all(each.expires_at > world.now for each in open_ones)
        assert sum(world.control.waiting.get("p", {}).values()) == len(open_ones) <= limits.max_waiting
    assert len(world.order) + len(world.refused) == sum(each.made is not None for each in asked)
    world.now += 9.0
    world.control.serve(world.now)
    assert world.control.waiting == {}
    for placement in world.placements:
        placement.finish(None, world.now)
    assert [counters(world.scheduler.server(each)) for each in POOL] == [NOTHING] * 2


def ask_late_and_fresh(world: World, **flows: str) -> None:
    """A request whose second is over when the server is free, and one that came just now."""
    world.ask("runs")
    world.ask("late", objective=FIRST, flow=flows["late"])
    world.now = 2.0
    world.ask("fresh", objective=FIRST, flow=flows["fresh"])
    while world.placements:
        world.finish()


def test_what_would_begin_late_goes_behind_what_can_be_in_time_and_before_its_wait_ends() -> None:
    world = World(pool=POOL[:1])
    ask_late_and_fresh(world, late="f", fresh="f")
    assert world.order == ["runs", "fresh", "late"]


def test_what_would_begin_late_keeps_its_turn_among_other_flows() -> None:
    world = World(pool=POOL[:1])
    ask_late_and_fresh(world, late="f", fresh="g")
    assert world.order == ["runs", "late", "fresh"]


def test_what_would_begin_late_is_not_put_before_those_to_come() -> None:
    """In the server's own queue it would make them late as well."""
    world = World(QueueLimits(), pool=POOL[:1])
    world.ask("large", prompt_tokens=50_000)
    world.tell(1)
    world.ask("late", objective=FIRST)
    assert world.order == ["large"]
    assert world.control.waiting == {"p": {0: 1}}
    world.tell(0)
    world.control.serve(world.now)
    assert world.order == ["large", "late"]


@pytest.mark.parametrize(
    "asked",
    [{}, {"objective": FIRST, "streamed": False}, {"objective": Objective(first_token=0.01)}],
    ids=["no promise", "an answer that comes whole", "no idle server would keep it"],
)
def test_whose_promise_says_nothing_goes_at_once(asked: dict[str, Any]) -> None:
    world = World(QueueLimits(), pool=POOL[:1])
    world.ask("large", prompt_tokens=50_000)
    world.tell(1)
    world.ask("asks", **asked)
    assert world.order == ["large", "asks"]
