"""Worlds drawn at random: the same number gives the same world, every request ends, and what is drawn varies."""

import pytest

from bench.instances.compare import MAX_LOST_SHARE, describe, score_world
from bench.instances.simulation import Simulation
from bench.instances.worlds import draw_world

NUMBERS = range(1, 41)


def test_the_same_number_gives_the_same_world_and_others_differ() -> None:
    assert draw_world(7).servers == draw_world(7).servers
    first, again = draw_world(7).load(), draw_world(7).load()
    assert [(job.arrival, job.output_tokens) for job in first.jobs] == [
        (job.arrival, job.output_tokens) for job in again.jobs
    ]
    assert len({draw_world(number).servers for number in NUMBERS}) == len(NUMBERS)


def test_all_that_may_vary_varies() -> None:
    worlds = [draw_world(number) for number in NUMBERS]
    for seen in (
        {bool(world.adapters) for world in worlds},
        {bool(world.prefixes) for world in worlds},
        {bool(world.sheddable) for world in worlds},
        {bool(world.faults) for world in worlds},
        {world.is_equal for world in worlds},
        {world.servers[0].chunked for world in worlds},
        {world.servers[0].told_share < 1 for world in worlds},
        {len(world.servers[0].tells) < 8 for world in worlds},
    ):
        assert seen == {True, False}


@pytest.mark.parametrize("policy", ["least-request", "predicted-wait", "predicted-wait/waiting"])
@pytest.mark.parametrize("number", [4, 38, 56])
def test_every_request_is_counted_once_and_given_back(number: int, policy: str) -> None:
    name, _, waits = policy.partition("/")
    simulation = Simulation(draw_world(number, requests=150).load(), name, "always", number, 0.0, waits=bool(waits))
    outcome = simulation.run()
    assert len(outcome.jobs) == len({id(job) for job in outcome.jobs}) > 100
    if not outcome.unfinished:
        assert [server.requests for server in simulation.scheduler.servers] == [0] * len(simulation.servers)  # type: ignore[union-attr]


def test_a_policy_beside_itself_loses_nothing() -> None:
    scored = score_world(56, "least-request")
    text = describe("least-request", [56], [scored], [scored])
    assert 0 <= scored.within <= 1
    assert MAX_LOST_SHARE > 0
    assert "fewer within in 0 of 1 worlds" in text
    assert "slower in 0" in text
