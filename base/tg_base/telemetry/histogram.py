"""Hot path -> Prometheus: a histogram whose observation costs a quarter of a microsecond instead of one.

The client library's histogram takes one or two locks for each observation. This one belongs to the event loop's thread.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override


class Cells:
    """The counts of one label value."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self._bounds, amount)] += 1
        self.total += amount

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Count several observations, in few steps for each."""
        for place, number in Counter(map(bisect_left, repeat(self._bounds), amounts)).items():
            self.counts[place] += number
        self.total += sum(amounts)

    def cumulate(self) -> list[tuple[str, float]]:
        """The counts as Prometheus' cumulative buckets."""
        buckets = []
        so_far = 0
        for bound, count in zip((*map(repr, map(float, self._bounds)), "+Inf"), self.counts, strict=True):
            so_far += count
            buckets.append((bound, float(so_far)))
        return buckets


class LightHistogram(Collector):
    """A histogram with one label.

    Args:
        name: the metric's name.
        documentation: what it measures.
        label: the label's name.
        buckets: upper bounds, inclusive, ascending.
        registry: the registry that exports it.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        label: str,
        buckets: tuple[float, ...],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._buckets = buckets
        self._cells: dict[str, Cells] = {}
        registry.register(self)

    def labels(self, value: str) -> Cells:
        """The counts of one label value. Keep them: the look-up is not free."""
        return self._cells.setdefault(value, Cells(self._buckets))

    @override
    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, cells in self._cells.items():
            family.add_metric([value], cells.cumulate(), cells.total)
        yield family
