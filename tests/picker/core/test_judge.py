"""Servers of another design: every request ends once, cache and slots are given back, and rows are judged."""

from random import Random

import pytest

from bench.instances.judge import INFORMED, JUDGED, OURS, RIVALS, describe
from bench.instances.paged_server import PagedServer
from bench.instances.simulation import Simulation


@pytest.mark.parametrize("load", ["churn-crash", "prefix-adapters", "base"])
def test_all_is_given_back(load: str) -> None:
    made = JUDGED[load].make(Random(load), 40.0, 4.0)
    simulation = Simulation(made, "least-request", "always", 1, 0.0, make_server=PagedServer)
    outcome = simulation.run()
    assert outcome.unfinished == 0
    assert len(outcome.jobs) == len({id(job) for job in outcome.jobs}) > 100
    for job in outcome.jobs:
        assert job.rejected or job.generated == job.output_tokens
    for server in simulation.servers:
        assert (server.cache.active, dict(server.running_adapters), list(server.decoding)) == (0, {}, [])


def test_a_row_is_judged_beside_the_best_peer_and_what_is_possible() -> None:
    peers = dict.fromkeys(RIVALS, (0.5, 0.5)) | {"seed": (0.9, 0.9)}
    rows = {
        ("near", 1.0): peers | {OURS: (0.891, 1.0), INFORMED: (0.8, 0.8)},
        ("half way", 1.0): peers | {OURS: (0.96, 1.0), INFORMED: (1.0, 1.0)},
        ("far", 1.0): peers | {OURS: (0.86, 1.0), INFORMED: (1.0, 1.0)},
    }
    said = describe(rows)
    assert "90.0 seed" in said
    assert said.endswith("within a point of the best in 2, half way to informed in 2, far behind in 1 of 3")
