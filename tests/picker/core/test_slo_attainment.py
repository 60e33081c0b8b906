"""What routes promise, and how it is watched: shares, windows, and who waits for whom then."""

from collections.abc import Sequence
from random import Random

import pytest

from bench.instances.loads import LOADS
from bench.instances.simulation import Simulation
from tests.picker.core.test_accounting import NOTHING, counters
from tests.picker.core.waiting_world import FIRST, POOL, World
from tg_picker.core import (
    InstanceRequest,
    InstanceUsage,
    Objective,
    Pick,
    QueueLimits,
)
from tg_picker.core.queue.prediction_errors import PredictionErrors
from tg_picker.core.queue.slo_attainment import MIN_SAMPLES, WINDOW_SECONDS, SlidingWindow
from tg_picker.pools import Slo, find_goal


def test_lower_bands_wait_while_a_higher_route_misses_its_promise() -> None:
    world = World(QueueLimits())
    strict = {"objective": {"first_token": 0.2, "quantile": 0.9}, "route": "strict"}
    for number in range(MIN_SAMPLES):
        world.ask("strict", 5, **strict)
        world.now += 0.05 if number % 5 else 0.3
        world.placements[-1].first_token(world.now)
    world.now += 0.5
    attained = world.control.attainment.read(world.now)["strict"]
    assert attained.is_behind
    assert attained.first_token == (16, MIN_SAMPLES)
    # Nothing is ahead there: a promise that no server can keep stops nobody.
    world.ask("low")
    assert world.order[-1] == "low"
    for _ in POOL:
        world.ask("large", 5, prompt_tokens=50_000)
    world.ask("low")
    world.ask("strict", 5, **strict)
    assert world.order[-1] == "strict"
    assert world.control.waiting == {"p": {0: 1}}
    for placement in world.placements:
        placement.finish(InstanceUsage(output_tokens=2), world.now)
    world.control.serve(world.now)
    assert world.order[-1] == "low"


def test_a_latency_that_is_no_longer_promised_makes_nobody_wait() -> None:
    """A route's objective is that of its last request, and what earlier ones had missed is still counted."""
    world = World(QueueLimits())
    for _ in range(MIN_SAMPLES):
        world.ask("strict", 5, objective={"first_token": 0.2, "quantile": 0.9}, route="r")
        world.now += 0.3
        world.placements[-1].first_token(world.now)
    world.ask("paced", 5, objective={"output_token": 0.1}, route="r")
    assert not world.control.attainment.read(world.now)["r"].is_behind


def test_a_pace_is_watched_too() -> None:
    world = World(QueueLimits())
    asked = InstanceRequest(objective=Objective(output_token=0.1), route="r")
    for seconds in (0.9, 0.5):
        made = world.control.submit("p", asked, lambda: POOL, world.now).made
        assert isinstance(made, Pick)
        made.placement.first_token(world.now)
        world.now += seconds
        made.placement.finish(InstanceUsage(output_tokens=8), world.now)
    assert world.control.attainment.read(world.now)["r"].output_token == (1, 2)


@pytest.mark.parametrize(("first", "output", "is_behind"), [(0.4, 0.9, True), (0.9, 0.4, False), (0.4, 0.4, False)])
def test_each_latency_has_a_share_of_its_own(first: float, output: float, is_behind: bool) -> None:
    """All first tokens are in time, and half of the answers."""
    world = World(QueueLimits())
    goal = find_goal((Slo("TimeToFirstToken", 1.0, first), Slo("OutputTokenLatency", 0.1, output)))
    assert goal is not None
    for at in range(MIN_SAMPLES):
        made = world.control.submit("p", InstanceRequest(objective=goal, route="r"), lambda: POOL, world.now).made
        assert isinstance(made, Pick)
        made.placement.first_token(world.now)
        world.now += 0.2 if at % 2 else 0.05
        made.placement.finish(InstanceUsage(output_tokens=2), world.now)
    assert world.control.attainment.read(world.now)["r"].is_behind is is_behind


def answer_together(world: World, groups: Sequence[int], seconds: float, **fields: object) -> None:
    """Requests of a route that run side by side, group after group, and take so long for a token."""
    for size in groups:
        for _ in range(size):
            world.ask("chat", 5, **fields)
        world.now += seconds
        for placement in world.placements[-size:]:
            placement.first_token(world.now)
        world.now += seconds
        for placement in world.placements[-size:]:
            placement.finish(InstanceUsage(output_tokens=2), world.now)


@pytest.mark.parametrize("latency", ["first_token", "output_token"])
@pytest.mark.parametrize("seconds", [0.0001, 0.0, -1.0])
def test_a_promise_that_no_server_can_keep_stops_nobody(latency: str, seconds: float) -> None:
    world, objective = World(QueueLimits()), {latency: seconds, "quantile": 0.5}
    answer_together(world, MIN_SAMPLES * [2], 0.1, route="strict", objective=objective)
    assert world.control.attainment.read(world.now)["strict"].is_behind
    for _ in POOL:
        world.ask("large", 5, prompt_tokens=50_000)
    world.ask("low")
    assert world.order[-1] == "low"


def test_lower_bands_wait_where_answers_are_too_slow_for_a_higher_one() -> None:
    world = World(QueueLimits(), POOL[:1])
    chat = {"objective": {"output_token": 0.1, "quantile": 0.9}, "route": "chat"}
    # Alone in time, and beside others too late.
    answer_together(world, 40 * [1], 0.05, **chat)
    answer_together(world, [11], 0.2, **chat)
    for _ in range(8):
        world.ask("chat", 5, **chat)
        world.placements[-1].first_token(world.now)
    world.ask("low", 4)
    world.ask("as high", 5)
    assert world.order[-2:] == ["chat", "as high"]
    for placement in world.placements:
        placement.finish(None, world.now)
    world.control.serve(world.now)
    assert world.order[-1] == "low"


def test_a_placement_that_moved_is_watched_where_it_went() -> None:
    world = World(QueueLimits())
    asked = InstanceRequest(objective=FIRST, route="r")
    made = world.control.submit("p", asked, lambda: POOL, 0.0).made
    assert isinstance(made, Pick)
    moved = world.control.move(made.placement, asked, POOL[1], 0.1)
    assert moved is not None
    moved.placement.first_token(0.5)
    moved.placement.finish(None, 0.6)
    assert world.control.attainment.read(0.6)["r"].first_token == (1, 1)
    assert [counters(world.scheduler.server(each)) for each in POOL] == [NOTHING] * 2


def test_the_window_slides() -> None:
    window = SlidingWindow()
    assert window.read(5.0) == (0, 0)
    for at in range(120):
        window.note(float(at), kept=at % 4 == 0)
    kept, total = window.read(119.0)
    assert WINDOW_SECONDS - 5 <= total <= WINDOW_SECONDS
    assert kept == total // 4
    assert window.read(200.0) == (0, 0)


def test_predictions_are_trusted_as_far_as_they_were_right() -> None:
    errors = PredictionErrors()
    assert errors.share_within(1.0, 0.1) == 0 == errors.share_within(1.0, -1.0)
    assert errors.share_within(1.0, 40.0) == pytest.approx(1.0)
    for at in range(500):
        errors.learn(1.0, 0.5 if at % 10 else 8.0)
    assert errors.share_within(2.0, 2.0) == pytest.approx(0.9, abs=0.03)
    assert errors.share_within(2.0, 20.0) == pytest.approx(1.0, abs=0.01)


def test_in_an_overload_the_higher_band_keeps_its_promise() -> None:
    def within(*, waits: bool) -> float:
        kind = LOADS["overload"]
        load = kind.make(Random("overload 0"), kind.hard, 30.0)
        for job in load.jobs:
            job.priority += 1
        outcome = Simulation(load, "predicted-wait", "always", 0, 7.5, waits=waits).run()
        first = [job for job in outcome.jobs if job.priority == 1 and job.arrival >= 7.5]
        return sum(job.ttft(outcome.ended_at) <= job.objective for job in first) / len(first)

    with_bands, without = within(waits=True), within(waits=False)
    assert with_bands > 0.8
    assert with_bands > without + 0.15
