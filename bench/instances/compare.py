"""Policies in worlds drawn at random: where one is worse than a simple one.

nice python -m bench.instances.compare                                        worlds 1 to 50
nice python -m bench.instances.compare --worlds 501-1500 --jobs 2             a thousand, not used for tuning
python -m bench.instances.compare --policies predicted-wait/waiting --against lora-residency
"""

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from bench.instances.run import rule_of
from bench.instances.simulation import Simulation
from bench.instances.worlds import draw_world

WARM_UP_SHARE = 0.25
MAX_LOST_SHARE = 0.01
"""Of the requests within their objective, that a policy may lose against the simple one."""
MAX_PACE_RATIO = 1.05
"""Of the mean time for each token of an answer, counted from the request's arrival."""


@dataclass(frozen=True)
class WorldScore:
    """What a policy made of a world.

    Attributes:
        within: share of requests whose first token came within their objective.
        critical_within: the same of those that are not sheddable.
        token_seconds: mean over requests: seconds from arrival to end, by tokens of the answer.
    """

    within: float
    critical_within: float
    token_seconds: float


def score_world(number: int, policy: str) -> WorldScore:
    """Run a world under a policy: POLICY, POLICY/ADMISSION or POLICY/waiting."""
    load = draw_world(number).load()
    name, admission, waits = rule_of(policy)
    outcome = Simulation(load, name, admission, number, 0.0, waits=waits).run()
    jobs = [job for job in outcome.jobs if job.arrival >= WARM_UP_SHARE * load.seconds]
    kept = {job: not job.rejected and job.ttft(outcome.ended_at) <= job.objective for job in jobs}
    critical = [kept[job] for job in jobs if job.priority >= 0]
    paces = [
        ((outcome.ended_at if job.ended_at is None else job.ended_at) - job.arrival) / job.output_tokens
        for job in jobs
        if not job.rejected
    ]
    return WorldScore(_share(kept.values()), _share(critical), fmean(paces) if paces else 0.0)


def _share(kept: Iterable[bool]) -> float:
    counted = [*kept]
    return sum(counted) / max(len(counted), 1)


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
        ]
    )


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="1-50", help="FIRST-LAST")
    parser.add_argument("--policies", default="predicted-wait,predicted-wait/waiting")
    parser.add_argument("--against", default="least-request", help="the simple one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    first, _, last = asked.worlds.partition("-")
    numbers, policies = list(range(int(first), int(last or first) + 1)), [asked.against, *asked.policies.split(",")]
    tasks = [(number, policy) for policy in policies for number in numbers]
    with ProcessPoolExecutor(asked.jobs) as pool:
        scores = list(pool.map(score_world, *zip(*tasks, strict=True), chunksize=4))
    rows = {policy: scores[at * len(numbers) :][: len(numbers)] for at, policy in enumerate(policies)}
    for policy in policies[1:]:
        print(describe(policy, numbers, rows[policy], rows[asked.against]))


if __name__ == "__main__":
    _main()
