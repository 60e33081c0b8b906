"""Counts of answers -> what happened in the last half a minute: rates, quantiles and errors of each service."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Final, NamedTuple

from tg_base.telemetry import labels
from tg_gateway.relay.answer_metrics import AnswerMetrics
from tg_schema.prompt_size import TOKEN_BYTES

MARK_SECONDS: Final = 5.0
"""Seconds between two marks."""
MAX_MARKS: Final = 7
"""The window is the time since the oldest mark: 30 to 35 s."""


class Rates(NamedTuple):
    """Figures of a service in the window, which can be added up over gateways.

    Attributes:
        tokens, errors, waiting: as of a `LiveQueue`.
        firsts: how many first tokens were within each of `labels.SECONDS`, and how many later.
    """

    tokens: float = 0.0
    errors: int = 0
    firsts: tuple[int, ...] = ()
    waiting: int = 0

    def plus(self, other: "Rates") -> "Rates":
        """The rates of both together."""
        firsts = tuple(map(sum, zip_longest(self.firsts, other.firsts, fillvalue=0)))
        tokens = round(self.tokens + other.tokens, 1)
        return Rates(tokens, self.errors + other.errors, firsts, self.waiting + other.waiting)


class LiveRates:
    """Remembers the counts of some moments.

    Args:
        places: the current counts, as in `Relay.places`.

    Attributes:
        began: when it was made, on the clock of `time.monotonic`.
    """

    def __init__(self, places: Mapping[tuple[str, str, str], AnswerMetrics]) -> None:
        self._places = places
        self.began = time.monotonic()
        self._marks = deque([(self.began, dict[AnswerMetrics, tuple[int, ...]]())], MAX_MARKS)

    def mark(self) -> None:
        """Remember the counts of this moment."""
        self._marks.append((time.monotonic(), {each: each.counts for each in self._places.values()}))

    @property
    def window(self) -> float:
        """Seconds since the oldest mark."""
        return max(time.monotonic() - self._marks[0][0], 0.001)

    def measure(self) -> dict[tuple[str, str], Rates]:
        """What happened since the oldest mark, by flow and service; nothing for those without a change."""
        sums: dict[tuple[str, str], Sequence[int]] = {}
        shared = set[tuple[tuple[str, str], object]]()
        for metrics in self._places.values():
            counts, old = metrics.counts, self._marks[0][1].get(metrics, metrics.before)
            if counts != old:
                # Beyond a thousand models or flows, places share the histogram "other".
                if (told := (metrics.name, metrics.first_token)) in shared:
                    old = *old[:2], *counts[2:]
                shared.add(told)
                total = sums.get(metrics.name) or [0] * len(counts)
                sums[metrics.name] = [each + new - was for each, new, was in zip(total, counts, old, strict=True)]
        return {
            name: Rates(round(letters / TOKEN_BYTES / self.window, 1), errors, tuple(firsts))
            for name, (letters, errors, *firsts) in sums.items()
        }


def find_quantile(counts: Sequence[int], share: float) -> float | None:
    """Seconds that this share of the observations did not exceed, estimated within their bounds; None = there are none.

    Args:
        counts: how many are within each of `labels.SECONDS`, and above all of them.
        share: above 0, at most 1.
    """
    if not (wanted := share * sum(counts)):
        return None
    steps = zip(pairwise((0.0, *labels.SECONDS)), pairwise(accumulate(counts, initial=0)), strict=False)
    for (low, high), (below, upto) in steps:
        if upto >= wanted:
            return float(f"{low + (high - low) * (wanted - below) / (upto - below):.3g}")
    return float(labels.SECONDS[-1])
