"""Rows of labels and numbers -> families of Prometheus, each under its new and its older name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tg_base.telemetry import Cells

NEW: Final = "llm_d_epp"
OBJECTIVE: Final = "inference_objective"
POOL: Final = "inference_pool"
EXTENSION: Final = "inference_extension"

# The prefix of llm-d-router's own names, as of ebab6879.
RENAMED: Final[Mapping[str, str]] = {
    "request_sizes": "request_size_bytes",
    "input_tokens": "request_input_tokens",
    "output_tokens": "request_output_tokens",
    "prompt_cached_tokens": "request_cached_tokens",
    "normalized_time_per_output_token_seconds": "request_ntpot_seconds",
    "request_tpot_seconds": "request_streaming_tpot_seconds",
}
"""The ends of older names of distributions, and those of the newer ones where they differ."""

Row = tuple[Sequence[str], float]
"""The values of a series' labels, and its number."""


def make_counters(suffix: str, old: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Iterator[Metric]:
    """A counter under two names that end alike; `old` is the beginning of the older one."""
    for name in (NEW, old):
        yield make_counter(f"{name}_{suffix}", text, labels, rows)


def make_gauges(suffix: str, old: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Iterator[Metric]:
    """A gauge under two names; `old` is the whole older one."""
    for name in (f"{NEW}_{suffix}", old):
        yield make_gauge(name, text, labels, rows)


def make_histograms(
    suffix: str, old: str, text: str, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], Cells]]
) -> Iterator[Metric]:
    """A histogram under two names; `suffix` is the end of the older one, and `old` its beginning."""
    buckets = [(values, cells.cumulate(), cells.total) for values, cells in rows]
    for name in (f"{NEW}_{RENAMED.get(suffix, suffix)}", f"{old}_{suffix}"):
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, counts, total in buckets:
            family.add_metric(values, counts, total)
        yield family


def make_counter(name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """A counter; its name is given without the suffix `_total`."""
    return _fill(CounterMetricFamily(name, text, labels=labels), rows)


def make_gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """A gauge."""
    return _fill(GaugeMetricFamily(name, text, labels=labels), rows)


def _fill(family: CounterMetricFamily | GaugeMetricFamily, rows: Iterable[Row]) -> Metric:
    for values, amount in rows:
        family.add_metric(values, amount)
    return family
