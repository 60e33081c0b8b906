"""One row of a table of metrics -> the metric, its documentation, and the names that dashboards may use."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

Kind = Literal["counter", "gauge", "histogram"]


class Label(NamedTuple):
    """A label of one or several metrics.

    Attributes:
        name: its name.
        values: a description of the values.
        most: how many values one process shows at most, if not only the operator chooses them; None = there are few.
        bound: turns any name into a value of the label, if the metric itself does that.
    """

    name: str
    values: str
    most: int | None = None
    bound: Callable[[str], str] = str


@dataclass(frozen=True, slots=True)
class Metric:
    """A row.

    Attributes:
        name: the name on the page; a counter's ends with `_total`.
        kind: its type in Prometheus.
        text: a description of what it measures.
        labels: the labels by which it is divided.
        buckets: upper bounds of a histogram, inclusive, ascending.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of its labels."""
        return tuple(label.name for label in self.labels)

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its series on the page."""
        ends = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(self.name + end for end in ends)

    def bound(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The values of its labels, with few enough of each."""
        return tuple(label.bound(value) for label, value in zip(self.labels, values, strict=True))

    def counter(self, registry: CollectorRegistry = REGISTRY) -> Counter:
        """The counter."""
        return Counter(self.name, self.text, self.label_names, registry=registry)

    def gauge(self, registry: CollectorRegistry = REGISTRY) -> Gauge:
        """The gauge."""
        return Gauge(self.name, self.text, self.label_names, registry=registry)

    def histogram(self, registry: CollectorRegistry = REGISTRY) -> Histogram:
        """The client library's histogram; `LightHistogram` is cheaper."""
        return Histogram(self.name, self.text, self.label_names, buckets=self.buckets, registry=registry)

    def family(self, rows: Iterable[tuple[Sequence[str], float]]) -> Family:
        """The current values of the counter or gauge: each series' label values, and its number."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(self.name, self.text, labels=self.label_names)
        for values, number in rows:
            family.add_metric(values, number)
        return family
