"""Eight pickers in the simulation: with shared state they hit as many prefixes as one, without it they do not."""

from statistics import fmean

from bench.instances.run import Run, run

SECONDS = 12.0
SEEDS = range(7, 10)
"""A first token's p99 of a short run on one seed moves by a third with any two picks that cross."""


def test_eight_pickers_pick_as_one_if_they_tell_each_other() -> None:
    (hits, p99), (shared_hits, shared_p99), (unshared_hits, _) = (
        _means(many, shared=told) for many, told in ((1, True), (8, True), (8, False))
    )
    assert shared_hits >= 0.97 * hits
    assert shared_p99 <= 1.5 * p99
    assert unshared_hits <= 0.9 * hits


def _means(pickers: int, *, shared: bool) -> tuple[float, float]:
    """Of the share of prompt tokens that were cached, and of the first token's p99 in seconds."""
    scores = [
        run(Run("prefix", "normal", "predicted-wait", seed, SECONDS, pickers=pickers, shared=shared)) for seed in SEEDS
    ]
    return fmean(each.prefix_hits for each in scores), fmean(each.ttft_p99 for each in scores)
