"""Many seeds -> which of them fail, and the command that repeats each."""

import gc
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context

from tests.simulation.run import Outcome, run
from tests.simulation.scenario import drawn

SHARE = 20
"""Seeds that a process is given at a time."""


def one(seed: int, *, verbose: bool, permits: bool = False) -> int:
    """Run one seed and tell what happened; 0 = it kept all promises."""
    if verbose:
        print(drawn(seed, permits=permits))
    lines: list[str] = []
    outcome = run(seed, permits=permits, listen=print if verbose else lines.append)
    _tell(outcome)
    print(f"seed {seed}: {len(outcome.violations)} broken promises, {outcome.seconds:.1f} s, trace {outcome.trace}")
    return 1 if outcome.violations else 0


def many(seeds: range, processes: int, *, permits: bool = False) -> int:
    """Run seeds side by side, and tell those that fail; 0 = none did."""
    began = time.monotonic()
    ends: Counter[str] = Counter()
    promises: Counter[str] = Counter()
    failed = 0
    for outcome in outcomes(seeds, processes, permits=permits):
        ends.update(outcome.ends)
        if outcome.violations:
            failed += 1
            promises[outcome.violations[0].promise] += 1
            _tell(outcome)
    print(f"streams ended as {dict(ends.most_common())}")
    print(f"{len(seeds)} seeds from {seeds.start}, {failed} failed {dict(promises)}, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def hunt(seeds: range, processes: int, promises: frozenset[str], *, permits: bool = False) -> int:
    """Run seeds until one of them breaks one of these promises, and tell it; 0 = none did."""
    for outcome in outcomes(seeds, processes, permits=permits):
        if any(violation.promise in promises for violation in outcome.violations):
            _tell(outcome)
            return 1
    return 0


def outcomes(seeds: range, processes: int, *, permits: bool = False) -> Iterable[Outcome]:
    """What became of each seed, as soon as it is known."""
    live = partial(run, permits=permits)
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


def _tell(outcome: Outcome) -> None:
    for violation in outcome.violations[:3]:
        print(f"seed {outcome.seed}: {violation.promise} at {violation.time:.2f} s: {violation.text[:300]}")
    if outcome.violations:
        faults = (f"{one.fault} at {one.time:.1f} for {one.seconds:.1f} s" for one in drawn(outcome.seed).troubles)
        print(f"    {', '.join(faults)}")
        print(f"    python -m tests.simulation --seed {outcome.seed} -v")
