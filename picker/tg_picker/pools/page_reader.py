"""A scraped page -> the load that the server reports."""

import math
from typing import Final

import msgspec

from tg_picker.core import AdapterReport, LoadReport, Residency
from tg_picker.pools.metrics_page import Labels, MetricsPage
from tg_picker.pools.server_kinds import SERVER_KINDS, Metric, ServerKind

MAX_COUNT = 10_000_000
"""A larger count is ignored: no server has more requests, slots or blocks."""

MAX_ADAPTERS = 10_000
"""Most adapters of one server; a page with more is implausible."""

_STARTED: Final = Metric("process_start_time_seconds")
"""A metric of Prometheus' client libraries, which every kind of server has on its page."""


class _LieError(Exception):
    """The page has an impossible number."""


def read_page(page: bytes, kind: str, now: float) -> LoadReport | None:
    """The report in a page.

    Args:
        page: any bytes.
        kind: a key of `SERVER_KINDS`; "auto" = the first kind of which the page has a metric.
        now: the report's `read_at`.

    Returns:
        None: the page has no load, or an impossible number, so that all of it is ignored. A value that the page lacks
            is None in the report.
    """
    read = MetricsPage(page)
    rows = SERVER_KINDS.values() if kind == "auto" else (SERVER_KINDS[kind],)
    for row in rows:
        try:
            report = _read(read, row, now)
        except _LieError:
            return None
        if report != LoadReport(now):
            return msgspec.structs.replace(report, started_at=_find_start(read))
    return None


def _read(page: MetricsPage, kind: ServerKind, now: float) -> LoadReport:
    return LoadReport(
        now,
        _count(page, kind.queued),
        _count(page, kind.running),
        _share(page, kind.kv_usage),
        _first_count(page, kind.block_tokens),
        _count(page, kind.blocks) or None,
        _adapters(page, kind),
        _queued_by_adapter(page, kind),
    )


def _find_start(page: MetricsPage) -> float | None:
    # Of several processes use the latest start, because the youngest process may have lost something.
    return max((value for _, value in page.find(_STARTED) if math.isfinite(value)), default=None)


def _values(page: MetricsPage, metrics: tuple[Metric, ...], most: float = MAX_COUNT) -> list[float]:
    """The values of the first metric that the page has; they must be from 0 to `most`."""
    metric, series = next(((each, found) for each in metrics if (found := page.find(each))), (None, []))
    if metric is not None and metric.value:
        counts = [_label_count(labels, metric.value) for labels, _ in series]
        # If one engine does not report its part, the sum is unknown.
        return [] if None in counts else [count for count in counts if count is not None]
    if not all(0 <= value <= most for _, value in series):
        raise _LieError
    return [value for _, value in series]


def _count(page: MetricsPage, metrics: tuple[Metric, ...]) -> int | None:
    values = _values(page, metrics)
    if sum(values) > MAX_COUNT:
        raise _LieError
    return int(sum(values)) if values else None


def _first_count(page: MetricsPage, metrics: tuple[Metric, ...]) -> int | None:
    """A size, which must not be summed over several models or engines; 0 means unknown."""
    return next((int(value) for value in _values(page, metrics) if value >= 1), None)


def _share(page: MetricsPage, metrics: tuple[Metric, ...]) -> float | None:
    values = _values(page, metrics, most=1)
    return sum(values) / len(values) if values else None


def _label_count(labels: Labels, name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= MAX_COUNT else None


def _adapters(page: MetricsPage, kind: ServerKind) -> AdapterReport | None:
    slots = _count(page, kind.lora_slots)
    active, waiting = frozenset[str](), frozenset[str]()
    resident = _resident(page, kind.lora_loaded) if kind.lora_loaded is not None else None
    newest = _newest(page, kind.lora_info) if kind.lora_info is not None else None
    if newest is not None:
        slots = _label_count(newest, "max_lora") if slots is None else slots
        active, waiting = _names(newest, "running_lora_adapters"), _names(newest, "waiting_lora_adapters")
    elif slots is None and resident is None:
        return None
    return AdapterReport(slots, active, waiting, resident)


def _queued_by_adapter(page: MetricsPage, kind: ServerKind) -> dict[str, int] | None:
    if kind.lora_requests is None or not page.has(kind.lora_requests.name):
        return None
    counts = {labels.get("adapter_name", ""): value for labels, value in page.find(kind.lora_requests)}
    if len(counts) > MAX_ADAPTERS or not all(0 <= count <= MAX_COUNT for count in counts.values()):
        raise _LieError
    return {name: int(count) for name, count in counts.items() if name and count >= 1}


def _newest(page: MetricsPage, metric: Metric) -> Labels | None:
    """The labels of the series with the largest value. vLLM has a series for each set of adapters that it ever ran."""
    series = [(value, labels) for labels, value in page.find(metric) if math.isfinite(value)]
    return max(series, key=lambda each: each[0])[1] if series else None


def _names(labels: Labels, name: str) -> frozenset[str]:
    names = frozenset(each for each in (part.strip() for part in labels.get(name, "").split(",")) if each)
    if len(names) > MAX_ADAPTERS:
        raise _LieError
    return names


def _resident(page: MetricsPage, metric: Metric) -> dict[str, Residency] | None:
    found: dict[str, Residency] = {}
    for labels, value in page.find(metric):
        name, level = labels.get("adapter_name", ""), labels.get("level")
        if not (name and value > 0):
            continue
        # An adapter may be in both memories. If the accelerator has it, it need not be copied.
        if level == "gpu":
            found[name] = "gpu"
        elif level == "cpu":
            found.setdefault(name, "cpu")
    if len(found) > MAX_ADAPTERS:
        raise _LieError
    return found if found or page.has(metric.name) else None
