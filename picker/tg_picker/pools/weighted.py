"""One of several names, each as often as its weight says."""

from itertools import accumulate
from random import Random

Weighted = tuple[tuple[str, int], ...]
"""Names and weights; the sum of the weights is positive."""


def choose(weighted: Weighted, draw: Random) -> str:
    """A name; one of weight 0 is never chosen. A single name draws nothing."""
    if len(weighted) == 1:
        return weighted[0][0]
    names, weights = zip(*weighted, strict=True)
    found: str = draw.choices(names, cum_weights=tuple(accumulate(weights)))[0]
    return found
