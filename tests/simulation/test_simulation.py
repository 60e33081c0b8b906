"""The protocol keeps its promises in 200 worlds, each seed repeats exactly, and known defects are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted_faults.__main__ import copy_packages, planted
from tests.planted_faults.__main__ import simulate as search
from tests.planted_faults.fault import ROOT, Fault
from tests.planted_faults.known_defects import KNOWN
from tests.simulation.pool_world import PoolWorld

SEEDS = 200
PERMIT_SEEDS = 50
ROUTE_SEEDS = 50
WAITING_SEEDS = 50
KEPT_SEEDS = 30
POOL_SEEDS = 50
DEFECT_SEEDS = 8000
"""A defect that none of these seeds finds is not found; the rarest takes one seed in about 700."""


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {}, capture_output=True, text=True, check=False)


def check(seeds: int, worlds: str = "any") -> None:
    done = simulate("--seeds", str(seeds), "--worlds", worlds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{seeds} seeds from 0, 0 failed" in done.stdout
    assert not done.stderr, "a coroutine that nobody awaits, or an error that nobody can catch"


@pytest.mark.timeout(900)
def test_every_promise_holds_in_two_hundred_worlds() -> None:
    check(SEEDS)


@pytest.mark.timeout(300)
def test_what_needs_a_permit_begins_once_in_all_worlds() -> None:
    check(PERMIT_SEEDS, "permits")


@pytest.mark.timeout(300)
def test_a_route_whose_first_model_fails_answers_in_all_worlds() -> None:
    check(ROUTE_SEEDS, "routes")


@pytest.mark.timeout(300)
def test_answers_that_wait_are_made_once_whoever_dies() -> None:
    check(WAITING_SEEDS, "waiting")


@pytest.mark.timeout(300)
def test_kept_streams_reach_their_readers_whoever_dies() -> None:
    check(KEPT_SEEDS, "kept")


def test_nobody_waits_for_a_pool_beside_a_server_with_room() -> None:
    broken = {seed: broken for seed in range(POOL_SEEDS) if (broken := PoolWorld(seed).run())}
    assert not broken


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", ["3", "7", "45"])
def test_a_seed_repeats_exactly_in_another_process(seed: str) -> None:
    first, second = (simulate("--seed", seed, "-v").stdout for _ in range(2))
    assert first == second
    assert "trace " in first
    assert first.count("\n") > 30


def test_nothing_of_a_world_outlives_its_run() -> None:
    program = """
import gc, types
from tests.simulation.run import run
run(45)
print(sum(isinstance(left, types.CoroutineType) for left in gc.get_objects()))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {}, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", KNOWN, ids=lambda fault: fault.name)
def test_a_known_defect_is_found(fault: Fault, tmp_path: Path) -> None:
    copy_packages(tmp_path)
    with planted(fault, tmp_path):
        assert search(fault, tmp_path, range(DEFECT_SEEDS)), "no seed finds it"
