"""A page of metrics in Prometheus' text format or OpenMetrics -> the series of a few metrics.

`prometheus_client.parser` reads every line of a page, which takes 15 ms for vLLM's 480 lines, and raises at a malformed
line. A gateway reads a page of each server 20 times a second and needs ten of its lines, so this finds them by name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tg_picker.pools.server_kinds import Metric

_LABEL = re.compile(rb'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(?:,[ \t]*)?')
# A time may follow: whole milliseconds, or in OpenMetrics seconds with a fraction, and there perhaps an exemplar.
_VALUE = re.compile(rb"\}?[ \t]+([^ \t\n\r]{1,64})(?:[ \t]+-?[0-9.eE+]{1,32})?[ \t]*(?: # \{[^\n]{0,512})?\r?\n")
_ESCAPE = re.compile(rb"\\(.)")
_ESCAPED = {b"n": b"\n"}

MAX_SERIES = 5_000
"""Most series of a metric that are read. vLLM has one for each set of adapters that it ever ran."""

MAX_RANK_DIGITS = 9
"""Most digits of a rank; longer numbers are ignored."""

MAX_LABELS = 64
"""Most labels of a series; series with more are ignored."""

Labels = dict[str, str]


class MetricsPage:
    """The bytes of a page. Everything that is not a series is skipped, and so is an incomplete last line."""

    def __init__(self, page: bytes) -> None:
        # Add a line break, because each name is searched at the start of a line.
        self._page = b"\n" + page

    def has(self, name: str) -> bool:
        """Whether a metric is on the page, even if it has no series."""
        return f"\n# TYPE {name} ".encode() in self._page or f"\n{name}".encode() in self._page

    def find(self, metric: Metric) -> list[tuple[Labels, float]]:
        """The matching series of a metric, with their values, which may be any float. A repeated series counts once."""
        found: dict[frozenset[tuple[str, str]], tuple[Labels, float]] = {}
        for labels, value in islice(self._read(metric.name), MAX_SERIES):
            if _counts(labels, metric):
                found[frozenset(labels.items())] = labels, value
        return _drop_ranks(found.values(), metric) if metric.ranks else list(found.values())

    def _read(self, name: str) -> Iterator[tuple[Labels, float]]:
        page, start = self._page, b"\n" + name.encode()
        at = page.find(start)
        while at >= 0:
            end = at + len(start)
            if (series := _read_series(page, end)) is not None:
                yield series
            at = page.find(start, end)


def _drop_ranks(series: Iterable[tuple[Labels, float]], metric: Metric) -> list[tuple[Labels, float]]:
    """Of each engine, the series with the lowest ranks."""
    found: dict[str, tuple[Labels, float]] = {}
    # Series with equal ranks stay in the order of the page.
    for each in sorted(series, key=lambda row: [_rank(row[0].get(rank, "")) for rank in metric.ranks]):
        found.setdefault(each[0].get(metric.engine, ""), each)
    return list(found.values())


def _rank(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_RANK_DIGITS else 0


def _read_series(page: bytes, at: int) -> tuple[Labels, float] | None:
    """The labels and the value after a name; None: it is a longer name, or not a series."""
    labels: Labels = {}
    if page[at : at + 1] == b"{":
        at += 1
        while len(labels) < MAX_LABELS and (label := _LABEL.match(page, at)):
            labels[label[1].decode()] = _unescape(label[2])
            at = label.end()
        if page[at : at + 1] != b"}":
            return None
    elif page[at : at + 1] not in {b" ", b"\t"}:
        return None
    value = _VALUE.match(page, at)
    if value is None:
        return None
    try:
        # Python reads "1_0" as 10, but the format has no such numbers.
        return None if b"_" in value[1] else (labels, float(value[1]))
    except ValueError:
        return None


def _unescape(value: bytes) -> str:
    if b"\\" in value:
        value = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value)
    return value.decode("utf-8", "replace")


def _counts(labels: Mapping[str, str], metric: Metric) -> bool:
    return all(labels.get(name) == value for name, value in metric.labels.items()) and all(
        labels.get(name, value) == value for name, value in metric.absent.items()
    )
