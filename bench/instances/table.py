"""Scores -> the table, means over seeds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from bench.instances.run import Run
from bench.instances.score import Score


@dataclass(frozen=True)
class Row:
    """A load at a rate under a policy, over its seeds."""

    load: str
    rate: str
    policy: str
    seeds: int
    mean: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def mean_of(runs: Sequence[Run], scores: Sequence[Score]) -> list[Row]:
    """One row for each load, rate and policy, in the order of the runs."""
    groups: dict[tuple[str, str, str], list[Score]] = {}
    for each, scored in zip(runs, scores, strict=True):
        groups.setdefault((each.load, each.rate, each.policy), []).append(scored)
    return [
        Row(*key, len(group), {field.name: fmean(getattr(one, field.name) for one in group) for field in fields(Score)})
        for key, group in groups.items()
    ]


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    heads = [
        "load",
        "rate",
        "policy",
        "within,%",
        "critical,%",
        "p50,s",
        "p99,s",
        "loads",
        "hits,%",
        "refused,%",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        mean = row.mean
        cells = (
            row.load,
            row.rate,
            row.policy,
            f"{100 * mean['within']:.1f}",
            f"{100 * mean['critical_within']:.1f}",
            f"{mean['ttft_p50']:.3f}",
            f"{mean['ttft_p99']:.2f}",
            f"{mean['loads']:.0f}",
            f"{100 * mean['prefix_hits']:.1f}",
            f"{100 * mean['refused']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
