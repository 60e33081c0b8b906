"""One table for each distribution -> all of its metrics. None is declared elsewhere."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from prometheus_client import Counter, Gauge

from tg_base.telemetry.gen_ai import rename, translate
from tg_base.telemetry.histogram import LightHistogram, Twin
from tg_base.telemetry.metric import Kind, Label, Metric

MAX_CACHED_COUNTERS: Final = 4096
"""Counters that are found without the client library's lock."""


class MetricTable:
    """The metrics of one distribution.

    Attributes:
        rows: in the order of their declaration.
    """

    def __init__(self) -> None:
        self.rows: list[Metric] = []

    def add(self, kind: Kind, name: str, text: str, *labels: Label, buckets: tuple[float, ...] = ()) -> Metric:
        """A new row."""
        self.rows.append(metric := Metric(name, kind, text, labels, buckets))
        return metric

    def counter(self, name: str, text: str, *labels: Label) -> Counter:
        """A new row, and its counter."""
        return self.add("counter", name, text, *labels).counter()

    def gauge(self, name: str, text: str, *labels: Label) -> Gauge:
        """A new row, and its gauge."""
        return self.add("gauge", name, text, *labels).gauge()

    def finder(self, name: str, text: str, *labels: Label) -> Callable[..., Counter]:
        """A new row, and a function that finds its counter by the values of its labels.

        The client library's own look-up takes a lock and 3 us, for each request.
        """
        metric = self.add("counter", name, text, *labels)
        counter = metric.counter()
        return lru_cache(MAX_CACHED_COUNTERS)(lambda *values: counter.labels(*metric.bound(values)))

    def histogram(
        self, name: str, text: str, *labels: Label, buckets: tuple[float, ...], published: str = ""
    ) -> LightHistogram:
        """A new row, and its histogram.

        Args:
            name: ours.
            text: a description of what it measures.
            labels: ours.
            buckets: the bounds.
            published: its name in `gen_ai`, if it has one; then the first label is the service. It gets a row too.
        """
        metric = self.add("histogram", name, text, *labels, buckets=buckets)
        if not published:
            return LightHistogram(metric)
        twin = self.add("histogram", published, text, *rename(labels), buckets=buckets)
        return LightHistogram(metric, Twin(twin, translate))
