"""How many requests a server runs side by side: as its engine showed when a request there was overdue."""

from dataclasses import dataclass, field
from random import Random

import pytest
from typing_extensions import override

from bench.instances.job import Job
from bench.instances.loads import poisson
from bench.instances.server_model import ServerModel
from bench.instances.simulation import Load, Simulation, Stall
from tests.picker.core.cases import endpoint, request
from tg_picker.core import (
    AdapterReport,
    Choice,
    InstanceRequest,
    LoadReport,
    Pick,
    Refusal,
    Scheduler,
    SchedulingContext,
)
from tg_picker.core.interface import Endpoint
from tg_picker.core.policies.predicted_wait import PredictedWait

FULL, FREE = endpoint("full"), endpoint("free")
PROMPT = request(tokens=1_000)
"""It takes 0.15 s, or 0.2 s behind others."""


@dataclass
class World:
    """Two servers. One runs four answers, and has told so at 0.0."""

    scheduler: Scheduler = field(default_factory=Scheduler)

    def __post_init__(self) -> None:
        for at in (-0.6, -0.45, -0.3, -0.15):
            self.place(FULL, at=at).placement.first_token(at + 0.15)  # as predicted, so nothing is learnt
        self.look(running=4, queued=0, at=0.0)

    def place(self, where: Endpoint, asked: InstanceRequest = PROMPT, at: float = 0.0) -> Pick:
        """Place a request on this server."""
        made = self.scheduler.pick(asked, (where,), at)
        assert isinstance(made, Pick)
        return made

    def look(self, *, running: int, queued: int, at: float) -> None:
        """Report what a look at the first server saw."""
        adapters = AdapterReport(slots=4, resident={"x": "gpu"})
        self.scheduler.observe(FULL, LoadReport(at, queued=queued, running=running, adapters=adapters))

    def seats(self) -> float:
        """What is known of the first server."""
        return self.scheduler.server(FULL).seats

    def choose(self, at: float = 0.9) -> Endpoint:
        """Where the next request goes. The other server has 6,000 tokens to compute, and the first one has 1,000."""
        made = self.scheduler.choose(PROMPT, (FULL, FREE), at)
        assert isinstance(made, Choice)
        return made.server.endpoint


def test_where_all_seats_are_taken_an_answer_has_to_end() -> None:
    """One that should have begun after 0.2 s has not begun after 0.9 s, beside four.

    For the request that comes now two of the four have to end, which takes half of the 4 s of an answer.
    """
    world = World()
    world.place(FREE, request(tokens=6_000))
    world.place(FULL)
    assert world.choose() == FULL
    world.look(running=4, queued=1, at=0.9)
    assert (world.seats(), world.choose()) == (4, FREE)
    # It may have been a stall, so it fades, until one is overdue again.
    assert (world.choose(at=10.0), world.choose(at=400.0)) == (FREE, FULL)
    world.look(running=4, queued=1, at=400.0)
    assert world.choose(at=400.0) == FREE


class Watched(PredictedWait):
    """Remembers where requests go."""

    def __init__(self) -> None:
        self.chosen: list[tuple[float, str]] = []

    @override
    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        made = super().choose(context)
        assert isinstance(made, Choice)
        self.chosen.append((context.now, made.server.endpoint.name))
        return made


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_after_a_stall_a_server_gets_its_whole_share_again(seed: int) -> None:
    """One of three stands still for 3 s while a few of its 64 seats are taken. Later it needs about ten."""
    model = ServerModel(
        cache_tokens=200_000, fixed_prefill_seconds=0.03, prefill_token_seconds=1e-5, min_prefill_seconds=0.0,
        fixed_decode_seconds=0.02, sequence_seconds=1e-4, cached_token_seconds=1e-7, chunked=True, sequences=64,
    )  # fmt: skip
    jobs = [Job(at, 200, 150, 2.0) for at in poisson(Random(seed), lambda _: 6.0, 6.0, 120.0)]
    watched = Watched()
    Simulation(Load([model] * 3, 120.0, jobs, stalls=[Stall(1.5, 3.0, 0)]), watched, "always", seed, 0.0).run()
    later = [name for at, name in watched.chosen if at > 20.0]
    assert later.count("s0") > 0.3 * len(later)


@pytest.mark.parametrize(
    ("asked", "at", "queued"),
    [
        pytest.param(PROMPT, 0.79, 1, id="less than four times as long as predicted"),
        pytest.param(request(tokens=9_000), 0.9, 1, id="a long prompt"),
        pytest.param(PROMPT, 0.9, 0, id="begun, and the first token is on its way"),
        pytest.param(request("y", tokens=1_000), 0.9, 1, id="its adapter is loaded"),
        pytest.param(InstanceRequest("base", prompt_tokens=1_000, streamed=False), 0.9, 1, id="it comes whole"),
    ],
)
def test_who_waits_for_something_else_shows_no_seats(asked: InstanceRequest, at: float, queued: int) -> None:
    world = World()
    world.place(FULL, asked)
    world.look(running=4, queued=queued, at=at)
    assert world.seats() == float("inf")


def test_a_cold_server_shows_no_seats() -> None:
    """It has begun nothing yet, so it is not full: it warms up beside the one answer that runs."""
    world = World()
    world.scheduler.restarted(FULL)
    world.place(FULL)
    world.look(running=1, queued=1, at=0.9)
    assert world.seats() == float("inf")


def test_one_that_runs_more_was_not_full_and_a_new_process_has_its_own_seats() -> None:
    world = World()
    overdue = world.place(FULL)
    world.look(running=4, queued=1, at=0.9)
    world.look(running=6, queued=0, at=1.0)
    assert world.seats() == float("inf")
    # It waits beside fewer now, for instance since these fill the cache.
    world.look(running=3, queued=1, at=1.1)
    assert world.seats() == 3
    overdue.placement.finish(None, 1.2)
    world.look(running=2, queued=1, at=2.9)
    assert world.seats() == 3
    world.scheduler.restarted(FULL)
    assert world.seats() == float("inf")
