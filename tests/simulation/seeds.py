"""Many seeds -> which of them fail, and the command that repeats each."""

import gc
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context

from tests.simulation.run import Outcome, run
from tests.simulation.scenario_terms import Worlds

SHARE = 20
"""Seeds that a process is given at a time."""


def one(seed: int, worlds: Worlds, *, verbose: bool) -> int:
    """Run one seed and tell what happened; 0 = it kept all promises."""
    lines: list[str] = []
    outcome = run(seed, worlds, listen=print if verbose else lines.append)
    _tell(outcome, worlds)
    print(f"seed {seed}: {len(outcome.violations)} broken promises, {outcome.seconds:.1f} s, trace {outcome.trace}")
    return 1 if outcome.violations else 0


def many(seeds: range, processes: int, worlds: Worlds) -> int:
    """Run seeds side by side, and tell those that fail; 0 = none did."""
    began = time.monotonic()
    ends: Counter[str] = Counter()
    promises: Counter[str] = Counter()
    failed = 0
    for outcome in outcomes(seeds, processes, worlds):
        ends.update(outcome.ends)
        if outcome.violations:
            failed += 1
            promises[outcome.violations[0].promise] += 1
            _tell(outcome, worlds)
    print(f"streams ended as {dict(ends.most_common())}")
    print(f"{len(seeds)} seeds from {seeds.start}, {failed} failed {dict(promises)}, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def hunt(seeds: range, processes: int, worlds: Worlds, promises: frozenset[str]) -> int:
    """Run seeds until one of them breaks one of these promises, and tell it; 0 = none did."""
    for outcome in outcomes(seeds, processes, worlds):
        if any("any" in promises or violation.promise in promises for violation in outcome.violations):
            _tell(outcome, worlds)
            return 1
    return 0


def outcomes(seeds: range, processes: int, worlds: Worlds) -> Iterable[Outcome]:
    """What became of each seed, as soon as it is known."""
    live = partial(run, worlds=worlds)
    if processes == 1:
        _calm()
        yield from map(live, seeds)
        return
    with get_context("fork").Pool(processes, _calm) as pool:
        yield from pool.imap_unordered(live, seeds, SHARE)


def _calm() -> None:
    """What is loaded now stays; only what a run makes is looked at by the garbage collector."""
    gc.collect()
    gc.freeze()


def _tell(outcome: Outcome, worlds: Worlds) -> None:
    for violation in outcome.violations[:3]:
        print(f"seed {outcome.seed}: {violation.promise} at {violation.time:.2f} s: {violation.text[:300]}")
    if outcome.violations:
        worlds_option = "" if worlds == "any" else f" --worlds {worlds}"
        print(f"    {outcome.faults}")
        print(f"    python -m tests.simulation --seed {outcome.seed}{worlds_option} -v")
