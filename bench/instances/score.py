"""An outcome -> figures of a row."""

from dataclasses import dataclass

from bench.instances.simulation import Outcome


@dataclass(frozen=True)
class Score:
    """One run.

    Attributes:
        requests: that arrived after the warm-up.
        within: share of them whose first token came within their objective; a refused one's did not.
        critical_within: the same of those that are not sheddable.
        ttft_p50: seconds, of those that were not refused.
        ttft_p99: seconds.
        loads: of adapters, after the warm-up.
        prefix_hits: share of prompt tokens that were cached.
        refused: share of requests.
    """

    requests: int
    within: float
    critical_within: float
    ttft_p50: float
    ttft_p99: float
    loads: int
    prefix_hits: float
    refused: float


def score(outcome: Outcome, warm_up: float) -> Score:
    """The figures of a run."""
    jobs = [job for job in outcome.jobs if job.arrival >= warm_up]
    served = [job for job in jobs if not job.rejected]
    ttfts = sorted(job.ttft(outcome.ended_at) for job in served)
    in_time = [not job.rejected and job.ttft(outcome.ended_at) <= job.objective for job in jobs]
    critical = [ok for job, ok in zip(jobs, in_time, strict=True) if job.priority >= 0]
    prompts = sum(job.prompt_tokens for job in served)
    return Score(
        len(jobs),
        sum(in_time) / max(len(in_time), 1),
        sum(critical) / max(len(critical), 1),
        _quantile(ttfts, 0.5),
        _quantile(ttfts, 0.99),
        outcome.adapter_loads,
        sum(job.cached_tokens for job in served) / max(prompts, 1),
        1 - len(served) / max(len(jobs), 1),
    )


def _quantile(ordered: list[float], quantile: float) -> float:
    return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else 0.0
