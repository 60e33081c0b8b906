"""The simulation in which policies are compared: steps worked by hand, nothing lost, the same seed the same run."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.instances.job import Job
from bench.instances.loads import LOADS
from bench.instances.run import PEERS, Run, run
from bench.instances.server_model import LLAMA_7B, QWEN_32B, ServerModel
from bench.instances.simulated_server import SimulatedServer
from bench.instances.simulation import Load, Simulation
from bench.instances.trace import Trace, replay


def job(adapter: str | None = None, tokens: int = 250, output: int = 3, arrival: float = 0.0) -> Job:
    return Job(arrival, tokens, output, 1.0, adapter)


def simulate(model: ServerModel, *jobs: Job) -> tuple[SimulatedServer, list[float]]:
    """One server alone; seconds at which first tokens came, and the last at which one ended."""
    simulation = Simulation(Load([model], 1.0, list(jobs)), "round-robin", "always", 0, 0.0)
    outcome = simulation.run()
    assert outcome.unfinished == 0
    ended = [each.ended_at or 0.0 for each in jobs]
    (server,) = simulation.servers
    assert isinstance(server, SimulatedServer)
    return server, [round(each.first_at or 0.0, 4) for each in jobs] + [round(max(ended), 4)]


def decode(sequences: int, tokens: int) -> float:
    return 0.014 + 1.026e-4 * sequences + 5.353e-7 * tokens


LLAMA = replace(LLAMA_7B, slots=1)
ONE_STEP = [
    ("at least 40 ms a batch, then two steps", LLAMA, [job()], [0.04, 0.04 + decode(1, 250) + decode(1, 251)]),
    ("1,000 tokens", LLAMA, [job(tokens=1_000, output=1)], [0.0874, 0.0874]),
    ("an adapter is loaded first", LLAMA, [job("x", output=1)], [0.44, 0.44]),
    ("once", LLAMA, [job("x", output=1), job("x", output=1, arrival=0.1)], [0.44, 0.48, 0.48]),
    ("the one slot drains first", LLAMA, [job("x", output=1), job("y", output=1)], [0.44, 0.88, 0.88]),
    ("half as fast", replace(LLAMA, speed=0.5), [job(output=1)], [0.08, 0.08]),
    ("two chunks", QWEN_32B, [job(tokens=16_384, output=1)], [0.9023, 0.9023]),
]


@pytest.mark.parametrize(("why", "model", "jobs", "times"), ONE_STEP)
def test_steps_worked_by_hand(why: str, model: ServerModel, jobs: list[Job], times: list[float]) -> None:
    _, seen = simulate(model, *[replace(each) for each in jobs])
    assert seen == pytest.approx(times, abs=1e-3), why


@pytest.mark.parametrize("name", LOADS)
def test_nothing_is_lost(name: str) -> None:
    """Each load for a second and a half: whatever arrived has ended, and nothing is held or counted any longer."""
    load = LOADS[name].make(Random(0), 20.0, 1.5)
    simulation = Simulation(load, "filter-tree", "threshold", 0, 0.0)
    outcome = simulation.run()
    assert outcome.unfinished <= sum(each.ended_at is None for each in outcome.jobs)
    for server in simulation.servers:
        held = len(server.waiting) + len(server.prefilling) + len(server.decoding)
        assert held or (server.cache.active, server.running_adapters) == (0, {})
    assert all(each.ended_at is not None or each.placement is not None for each in outcome.jobs)


def test_the_same_seed_gives_the_same_run() -> None:
    asked: Callable[[int], Run] = lambda seed: Run("burst", "30", "weighted-lora/probabilistic", seed, 2.0)  # noqa: E731
    assert run(asked(1)) == run(asked(1)) != run(asked(2))


@pytest.mark.parametrize("policy", [*PEERS, "informed"])
def test_every_policy_serves_a_quiet_load(policy: str) -> None:
    scored = run(Run("prefix-adapters", "8", policy, 0, 2.0))
    assert (scored.requests > 5, scored.refused) == (True, 0.0)


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}\n'
        '{"timestamp": 3000, "input_length": 1024, "output_length": 6, "hash_ids": [7, 8]}\n'
        '{"timestamp": 9000, "input_length": 600, "output_length": 7, "hash_ids": [7, 11]}\n'
    )
    load = replay(Trace(path, 2, 3.0), 2.0, 4.0)
    assert [(each.arrival, each.prompt_tokens, each.output_tokens) for each in load.jobs] == [
        (0, 1100, 5),
        (1.5, 1024, 6),
    ]
    assert [len(each.prefix.blocks) for each in load.jobs] == [17, 16]
    assert load.jobs[0].prefix.blocks[:16] == load.jobs[1].prefix.blocks
    outcome = Simulation(load, "weighted", "always", 0, 0.0).run()
    assert [each.cached_tokens for each in outcome.jobs] == [0, 1023]


def test_an_excerpt_of_a_trace_is_replayed_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    row = '{{"timestamp": {0}, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]}}\n'
    path.write_text(row.format(1788626400900) + row.format(1788626400000))
    scored = run(Run("trace", "1", "weighted", 0, math.inf, Trace(path, 2, 3.0)))
    assert (scored.requests, scored.within, scored.refused) == (1, 1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no rows"),
        ('\n{"timestamp": 1}', "line 2: Object missing required field `input_length`"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []}', "line 1: Expected `float` >= 0"),
        ("[", "line 1: "),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(told)):
        replay(Trace(path, 2, 3.0), 1.0, math.inf)
