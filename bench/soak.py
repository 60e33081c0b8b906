"""Real processes under steady load, with random faults: nothing lost, nobody waits for ever, nothing grows.

    python -m bench.soak --minutes 2               what CI runs
    python -m bench.soak --minutes 10 --seed 7

A run is a warm-up and then rounds. In each round clients of every kind ask while faults come one after the other; then
the load pauses, all running requests end, and what is held *at rest* is looked at. Slopes are fitted through these
looks, so that no load is taken for a leak.

Exit code 1: a request was lost, hung or wrong, a process died, or something grew by more than its bound.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.soak_faults import SoakFaults
from bench.soak_load import BAD, End, SoakLoad
from bench.soak_pipeline import SoakPipeline, running_pipeline

WARM_UP = 15.0
ROUND = 30.0
FAULTS_A_ROUND = 4
SETTLE = 30.0
"""Seconds that a look waits for what is on its way to go: idle connections, topics that nobody uses."""
LINGER = 120.0
"""Seconds for which a process that was restarted may leave a topic behind: its peers close what they do not use after
60 to 90, the broker then deletes it."""
BOUNDS = {"memory_mib": 24.0, "descriptors": 10.0, "tasks": 8.0, "topics": 2.0, "subscriptions": 2.0}
"""How much more may be held at the end of the fitted line than at its beginning; memory, descriptors and tasks of one
process."""
LONG = 6
"""Looks from which on the first third of them belongs to the warm-up: allocators and pools grow to what they need."""
SHORT_MEMORY_FACTOR = 2.0
"""How many times as much memory a process may grow by in a run with fewer looks, which has no other warm-up than its
first one: what is freed stays with the allocator, and each kind of fault takes its buffers for the first time."""


@dataclass
class Look:
    """What is held at rest.

    Attributes:
        at: seconds since the run began.
        memory_mib, descriptors, tasks: of each process that lives through everything.
        topics, subscriptions: in the broker, without those that a restarted process may still leave behind.
        lingering: those.
        generations: answers that the provider still writes, for nobody.
    """

    at: float
    memory_mib: dict[str, float]
    descriptors: dict[str, int]
    tasks: dict[str, int]
    topics: int
    subscriptions: int
    lingering: int
    generations: int
    names: list[str] = field(default_factory=list)


class Soak:
    """One run."""

    def __init__(self, pipeline: SoakPipeline, load: SoakLoad, faults: SoakFaults) -> None:
        self.looks: list[Look] = []
        self._pipeline = pipeline
        self._load = load
        self._faults = faults
        self._began = time.monotonic()

    async def run(self, seconds: float) -> None:
        """Warm up, and go round until the time is over; at least once."""
        await self._round(WARM_UP, 0)
        until = self._began + seconds
        while len(self.looks) < 2 or time.monotonic() + ROUND < until:
            await self._round(ROUND, FAULTS_A_ROUND)

    async def _round(self, seconds: float, count: int) -> None:
        self._load.resume()
        least = asyncio.create_task(asyncio.sleep(seconds))
        if not count:
            await self._faults.poison()
        played = await self._faults.play(count)
        await least
        await self._load.pause()
        if not await self._pipeline.ready(60):
            self._faults.bad.append("the gateways are not ready at rest")
        look = await self._look()
        self.looks.append(look)
        memory = " ".join(f"{name} {value:.0f}" for name, value in look.memory_mib.items())
        book = self._load.book
        print(
            f"{look.at:6.0f} s: {', '.join(played) or 'warm-up'}; {sum(book.ends.values())} requests, "
            f"{book.ends[End.WHOLE]} completed, bad {len(book.bad)}; at rest MiB {memory}; "
            f"descriptors {sum(look.descriptors.values())}, tasks {sum(look.tasks.values())}, "
            f"topics {look.topics} + {look.lingering}, subscriptions {look.subscriptions}",
            file=sys.stderr,
            flush=True,
        )

    async def _look(self) -> Look:
        """Now, or as soon as it is no more than at the first look, within `SETTLE` seconds."""
        until = time.monotonic() + SETTLE
        await asyncio.sleep(3)
        while True:
            look = await self._seen()
            settled = not look.generations and (not self.looks or _no_more(look, self.looks[0]))
            if settled or time.monotonic() > until:
                return look
            await asyncio.sleep(1)

    async def _seen(self) -> Look:
        survivors = [member for member in self._pipeline.survivors if member.name not in self._pipeline.dead]
        topics = await self._pipeline.topics()
        # Without a subscription somebody can still write to it, but nobody reads; that is right for dead letters only.
        alive = {name: count for name, count in topics.items() if count or "dead-letter" in name}
        return Look(
            round(time.monotonic() - self._began, 1),
            {member.name: round(member.resident, 1) for member in survivors},
            {member.name: member.descriptors for member in survivors},
            {member.name: await member.tasks(self._pipeline.http) for member in survivors},
            len(alive),
            sum(alive.values()),
            len(topics) - len(alive),
            await self._pipeline.active(),
            sorted(topics),
        )


def _no_more(look: Look, first: Look) -> bool:
    return (
        # Of each process: what one has closed must not hide what another still has open.
        all(count <= first.descriptors[name] + 1 for name, count in look.descriptors.items())
        and all(count <= first.tasks[name] for name, count in look.tasks.items())
        and look.topics <= first.topics
        and look.subscriptions <= first.subscriptions
    )


def slope(times: list[float], values: list[float]) -> float:
    """Of the line of least squares, per second; 0 where there is no line."""
    return statistics.linear_regression(times, values).slope if len(set(times)) > 1 else 0.0


@dataclass(frozen=True)
class Growth:
    """How one thing changed over a run, by its fitted line."""

    what: str
    first: float
    last: float
    per_hour: float
    grown: float
    bound: float

    @property
    def flat(self) -> bool:
        """Whether it stays within its bound."""
        return self.grown <= self.bound


def growths(looks: list[Look]) -> list[Growth]:
    """Everything that may leak, after the warm-up."""
    short = len(looks) < LONG
    looks = looks if short else looks[len(looks) // 3 :]
    times = [look.at for look in looks]
    span = times[-1] - times[0]
    series: dict[tuple[str, str], Callable[[Look], float]] = {}
    for name in looks[-1].memory_mib:
        series["memory_mib", f"memory of {name}, MiB"] = lambda look, name=name: look.memory_mib[name]  # type: ignore[misc]
        series["descriptors", f"descriptors of {name}"] = lambda look, name=name: look.descriptors[name]  # type: ignore[misc]
        series["tasks", f"tasks of {name}"] = lambda look, name=name: look.tasks[name]  # type: ignore[misc]
    series["topics", "topics"] = lambda look: look.topics
    series["subscriptions", "subscriptions"] = lambda look: look.subscriptions
    found = []
    for (kind, what), value in series.items():
        values = [float(value(look)) for look in looks]
        each = slope(times, values)
        grown = round(each * span, 1)
        bound = BOUNDS[kind] * (SHORT_MEMORY_FACTOR if short and kind == "memory_mib" else 1)
        found.append(Growth(what, values[0], values[-1], round(each * 3600, 1), grown, bound))
    return found


def report(
    soak: Soak, load: SoakLoad, faults: SoakFaults, pipeline: SoakPipeline, stats: dict[str, Any]
) -> dict[str, Any]:
    """Everything that a run has shown, as plain values."""
    book, grown = load.book, growths(soak.looks)
    last = soak.looks[-1]
    restarts = len([at for at in faults.restarts if time.monotonic() - at < LINGER + SETTLE])
    bad = [*book.bad, *faults.bad, *(f"{name} died" for name in pipeline.dead), *pipeline.defects()]
    bad += [
        f"{growth.what} grew by {growth.grown:g}, over its bound of {growth.bound:g}"
        for growth in grown
        if not growth.flat
    ]
    if last.lingering > 2 * restarts + 1:
        bad.append(f"{last.lingering} topics that nobody reads, after {restarts} restarts within {LINGER:g} s")
    if last.generations:
        bad.append(f"{last.generations} answers are still written, for nobody")
    return {
        "accepted": book.accepted,
        **{end.value: book.ends[end] for end in End},
        "errors by type": dict(book.errors.most_common()),
        "by kind of client": dict(book.kinds.most_common()),
        "slowest end, s": round(book.slowest, 1),
        "faults": dict(sorted(faults.played.items())),
        "provider": stats,
        "growth": [asdict(growth) | {"flat": growth.flat} for growth in grown],
        "lingering topics at the end": last.lingering,
        "generations left": last.generations,
        "bad": bad,
        "looks": [asdict(look) for look in soak.looks],
    }


def shown(result: dict[str, Any]) -> str:
    """The result for people, as Markdown."""
    lines = [f"| accepted | {result['accepted']:,} |", "|---|---|"]
    lines += [f"| {end.value}{' (must be 0)' if end in BAD else ''} | {result[end.value]:,} |" for end in End]
    lines.append(f"| slowest end of a request | {result['slowest end, s']} s |")
    for name in ("errors by type", "by kind of client", "faults"):
        lines.append(f"| {name} | {', '.join(f'{key} {value}' for key, value in result[name].items())} |")
    provider = result["provider"]["faults"]
    lines.append(
        f"| calls of the provider | {', '.join(f'{key} {value}' for key, value in sorted(provider.items()))} |"
    )
    columns = ("at rest", "first look", "last look", "per hour, fitted", "over the run, fitted", "bound", "flat")
    lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for growth in result["growth"]:
        cells = [f"{growth[key]:,g}" for key in ("first", "last", "per_hour", "grown", "bound")]
        lines.append(f"| {growth['what']} | {' | '.join(cells)} | {'yes' if growth['flat'] else '**no**'} |")
    lines += ["", *(f"BAD: {line}" for line in result["bad"][:50])]
    return "\n".join(lines)


async def soaked(minutes: float, seed: int, clients: int, share: float, folder: Path) -> dict[str, Any]:
    """One run, and what it has shown."""
    async with running_pipeline(folder, seed, share) as pipeline:
        load = SoakLoad(pipeline.gateways, clients, seed)
        faults = SoakFaults(pipeline, seed)
        soak = Soak(pipeline, load, faults)
        asking = asyncio.create_task(load.run())
        try:
            await soak.run(60 * minutes)
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        result = report(soak, load, faults, pipeline, await pipeline.provider_stats())
    result["bad"] += [f"{member.name} ended with {member.died}" for member in pipeline.members.values() if member.died]
    return {"minutes": minutes, "seed": seed, "clients": clients, **result}


def main() -> None:
    """Read the command line, run, print; exit code 1 where something is bad."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    # Of the eight faults in two minutes this one has each kind, and those of the broker first.
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--faults", type=float, default=0.08, help="share of the provider's calls that fail")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the processes' logs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-soak-") as folder:
        kept = args.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        result = asyncio.run(soaked(args.minutes, args.seed, args.clients, args.faults, kept))
    print(shown(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1), "utf-8")
    sys.exit(1 if result["bad"] else 0)


if __name__ == "__main__":
    main()
