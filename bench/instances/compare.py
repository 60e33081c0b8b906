"""Policies in worlds drawn at random: where one is worse than a simple one, and what it promises in every world.

nice python -m bench.instances.compare                                        worlds 1 to 50
nice python -m bench.instances.compare --worlds 501-1500 --jobs 2 --check     a thousand, not used for tuning
python -m bench.instances.compare --policies predicted-wait/waiting --against lora-residency
"""

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from bench.instances.baselines.policies import make_policy
from bench.instances.run import rule_of
from bench.instances.simulation import Outcome, Simulation
from bench.instances.worlds import REQUESTS, draw_world
from tg_picker.core import Choice, Objective, Policy, Refusal, SchedulingContext

WARM_UP_SHARE = 0.25
MAX_LOST_SHARE = 0.01
"""Of the requests within their objective, that a policy may lose against the simple one."""
MAX_PACE_RATIO = 1.05
"""Of the mean time for each token of an answer, counted from the request's arrival."""
MAX_WORSE_SHARE = 0.15
"""Of the worlds, in which one property may not hold: least-request beside itself, with other ties, breaks 5 to 10 %."""
UNKEEPABLE = Objective(first_token=1e-4, output_token=1e-6)
STRICT_EACH = 10
"""Of this many requests one belongs to the route with the objective that no server can meet."""


@dataclass(frozen=True)
class WorldScore:
    """What a policy made of a world.

    Attributes:
        within: share of requests whose first token came within their objective.
        critical_within: the same of those that are not sheddable.
        token_seconds: mean over requests: seconds from arrival to end, by tokens of the answer.
        idle: share of picks that left a server idle for one with two requests, of all for which nothing spoke.
        overtaken: requests of a lower priority that were placed while a higher one waited for a server.
    """

    within: float
    critical_within: float
    token_seconds: float
    idle: float = 0.0
    overtaken: int = 0


class _Watched:
    """A policy, and how often it left a server idle."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.picks = self.idle = 0

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        made = self._policy.choose(context)
        if isinstance(made, Choice):
            self.picks += 1
            self.idle += made.server.requests >= 2 and any(not each.requests for each in context.servers)
        return made


def score_world(number: int, policy: str, requests: int = REQUESTS, ties: int = 0) -> WorldScore:
    """Run a world under a policy: POLICY, POLICY/ADMISSION or POLICY/waiting. `ties` decides those that are equal."""
    world = draw_world(number, requests)
    load = world.load()
    name, admission, waits = rule_of(policy)
    watched = _Watched(make_policy(name))
    outcome = Simulation(load, watched, admission, number + 1_000_000 * ties, 0.0, waits=waits).run()
    # Where adapters and prompts are kept, or servers differ, one that is busy may be better than an idle one.
    is_plain = world.is_equal and not world.adapters and not world.prefixes
    idle = watched.idle / max(watched.picks, 1) if is_plain else 0.0
    return _score(outcome, load.seconds, idle)


def score_beside_promise(number: int, requests: int = REQUESTS, *, is_made: bool) -> WorldScore:
    """The default in a world where a route of a higher priority has a promise that nobody keeps, or none.

    The score is that of all other routes.
    """
    load = draw_world(number, requests).load()
    for job in load.jobs[::STRICT_EACH]:
        job.priority, job.promise = 1, UNKEEPABLE if is_made else Objective()
    outcome = Simulation(load, "predicted-wait", "always", number, 0.0, waits=True).run()
    outcome.jobs = [job for job in outcome.jobs if job.priority <= 0]
    return _score(outcome, load.seconds, 0.0)


def _score(outcome: Outcome, seconds: float, idle: float) -> WorldScore:
    jobs = [job for job in outcome.jobs if job.arrival >= WARM_UP_SHARE * seconds]
    kept = {job: not job.rejected and job.ttft(outcome.ended_at) <= job.objective for job in jobs}
    critical = [kept[job] for job in jobs if job.priority >= 0]
    paces = [
        ((outcome.ended_at if job.ended_at is None else job.ended_at) - job.arrival) / job.output_tokens
        for job in jobs
        if not job.rejected
    ]
    pace = fmean(paces) if paces else 0.0
    return WorldScore(_share(kept.values()), _share(critical), pace, idle, outcome.overtaken)


def _share(kept: Iterable[bool]) -> float:
    counted = [*kept]
    return sum(counted) / max(len(counted), 1)


def find_broken(scores: list[WorldScore], simple: list[WorldScore], again: list[WorldScore]) -> list[str]:
    """What does not hold of a policy's scores, beside two runs of the simple one that differ in ties alone."""
    triples = list(zip(scores, simple, again, strict=True))
    worse = {
        "fewer in time than the simple one": sum(
            each.critical_within < min(one.critical_within, two.critical_within) - MAX_LOST_SHARE
            for each, one, two in triples
        ),
        "slower than the simple one": sum(
            each.token_seconds > MAX_PACE_RATIO * max(one.token_seconds, two.token_seconds)
            for each, one, two in triples
        ),
        "a server was left idle": sum(each.idle > 0 for each in scores),
    }
    broken = [
        f"{words} in {count} of {len(scores)} worlds"
        for words, count in worse.items()
        if count > MAX_WORSE_SHARE * len(scores)
    ]
    if any(each.overtaken for each in scores):
        broken.append("a sheddable request was placed while a critical one waited")
    if fmean(each.within for each in scores) < fmean(each.within for each in simple):
        broken.append("fewer in time over all worlds")
    if fmean(each.token_seconds for each in scores) > fmean(each.token_seconds for each in simple):
        broken.append("slower over all worlds")
    return broken


def describe(policy: str, numbers: list[int], scores: list[WorldScore], simple: list[WorldScore]) -> str:
    """The lines of one policy beside the simple one."""
    pairs = list(zip(numbers, scores, simple, strict=True))
    lost = [(low.within - high.within, number) for number, high, low in pairs]
    slower = [(high.token_seconds / low.token_seconds, number) for number, high, low in pairs if low.token_seconds]
    worse = sorted(((loss, number) for loss, number in lost if loss > MAX_LOST_SHARE), reverse=True)
    slow = sorted(((ratio, number) for ratio, number in slower if ratio > MAX_PACE_RATIO), reverse=True)
    head = (
        f"{policy}: {100 * fmean(each.within for each in scores):.1f} % within their objective, critical"
        f" {100 * fmean(each.critical_within for each in scores):.1f} %; beside it"
        f" {100 * fmean(each.within for each in simple):.1f} and"
        f" {100 * fmean(each.critical_within for each in simple):.1f} %"
    )
    return "\n".join(
        [
            head,
            f"  fewer within in {len(worse)} of {len(pairs)} worlds: "
            + ", ".join(f"{number} (-{100 * loss:.1f})" for loss, number in worse[:8]),
            f"  slower in {len(slow)}: " + ", ".join(f"{number} (x{ratio:.2f})" for ratio, number in slow[:8]),
            f"  a server left idle in {sum(each.idle > 0 for each in scores)}; requests overtaken by sheddable ones: "
            + str(sum(each.overtaken for each in scores)),
        ]
    )


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="1-50", help="FIRST-LAST")
    parser.add_argument("--policies", default="predicted-wait/waiting")
    parser.add_argument("--against", default="least-request", help="the simple one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--check", action="store_true", help="fail if what every policy should hold does not")
    asked = parser.parse_args()
    first, _, last = asked.worlds.partition("-")
    numbers, policies = list(range(int(first), int(last or first) + 1)), [asked.against, *asked.policies.split(",")]
    tasks = [(number, policy) for policy in policies for number in numbers]
    with ProcessPoolExecutor(asked.jobs) as pool:
        scores = list(pool.map(score_world, *zip(*tasks, strict=True), chunksize=4))
        repeat = partial(score_world, policy=asked.against, ties=1)
        again = list(pool.map(repeat, numbers, chunksize=4)) if asked.check else []
    rows = {policy: scores[at * len(numbers) :][: len(numbers)] for at, policy in enumerate(policies)}
    for policy in policies[1:]:
        print(describe(policy, numbers, rows[policy], rows[asked.against]))
        if asked.check and (broken := find_broken(rows[policy], rows[asked.against], again)):
            sys.exit(f"{policy}: {'; '.join(broken)}")


if __name__ == "__main__":
    _main()
