"""Hot path -> Prometheus: a histogram whose observation costs a quarter of a microsecond instead of one.

The client library's histogram takes one or two locks for each observation. This one belongs to the event loop's thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_base.telemetry.metric import Metric


class Cells:
    """The counts of one series of labels."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self._bounds, amount)] += 1
        self.total += amount

    def cumulate(self) -> list[tuple[str, float]]:
        """The counts as Prometheus' cumulative buckets."""
        buckets = []
        so_far = 0
        for bound, count in zip((*map(repr, map(float, self._bounds)), "+Inf"), self.counts, strict=True):
            so_far += count
            buckets.append((bound, float(so_far)))
        return buckets


class Twin(NamedTuple):
    """The same figure under another published name.

    Attributes:
        metric: its row.
        translate: turns the values of our labels into those of its labels.
    """

    metric: Metric
    translate: Callable[[tuple[str, ...]], tuple[str, ...]]


class LightHistogram(Collector):
    """A histogram.

    Args:
        metric: its row.
        twins: the other names under which it is shown.
        registry: the registry that exports it.
    """

    def __init__(self, metric: Metric, *twins: Twin, registry: CollectorRegistry = REGISTRY) -> None:
        self._metric = metric
        self._shown = (Twin(metric, tuple), *twins)
        self._cells: dict[tuple[str, ...], Cells] = {}
        registry.register(self)

    def labels(self, *values: str) -> Cells:
        """The counts of these labels. Keep them: the look-up is not free."""
        bound = self._metric.bound(values)
        return self._cells.get(bound) or self._cells.setdefault(bound, Cells(self._metric.buckets))

    @override
    def collect(self) -> Iterable[HistogramMetricFamily]:
        for metric, translate in self._shown:
            family = HistogramMetricFamily(metric.name, metric.text, labels=metric.label_names)
            for values, cells in self._cells.items():
                family.add_metric(translate(values), cells.cumulate(), cells.total)
            yield family
