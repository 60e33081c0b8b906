"""A response header in ORCA's format -> the load that the server reports with its answer.

vLLM and Triton send it: https://github.com/envoyproxy/envoy/issues/6614. The binary format is not supported.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tg_picker.core import LoadReport
from tg_picker.pools.page_reader import MAX_COUNT

Value = TypeVar("Value")

LOAD_FORMAT = "text"
"""The format that we request. Both text formats are read, whichever was requested."""

MAX_METRICS = 256
"""Most metrics of a header that are read."""

KEEP_SECONDS = 2.0
"""How long an earlier value stays valid if a header does not repeat it."""

NAMES: Mapping[str, str] = {
    "num_requests_waiting": "queued",
    "num_requests_running": "running",
    "kv_cache_usage_perc": "kv_usage",
    "gpu_cache_usage_perc": "kv_usage",
    "kv_cache_utilization": "kv_usage",
}
"""Names of metrics, without the map that contains them -> fields of a report. The last name is Triton's."""

MAX_NUMBERS: Mapping[str, float] = {"queued": MAX_COUNT, "running": MAX_COUNT, "kv_usage": 1.0}


class _Json(Struct):
    """The JSON format. Other maps next to this one are a request's costs and the machine's utilization."""

    named_metrics: dict[str, Any] = {}


def read_load_header(value: str, now: float) -> LoadReport | None:
    """The report in a header. Missing values are None; see `merge_reports`.

    Args:
        value: the value of the header `tg_base.telemetry.LOAD_RESPONSE_HEADER`; any text.
        now: the report's `read_at`.

    Returns:
        None: the header has no load, or an impossible number.
    """
    form, _, rest = value.strip().partition(" ")
    metrics = _read_json(rest) if form.upper() == "JSON" else _read_text(rest) if form.upper() == "TEXT" else iter(())
    found: dict[str, float] = {}
    for name, number in metrics:
        field = NAMES.get(name.removeprefix("named_metrics."))
        if field is not None:
            found.setdefault(field, number)
    if not found or not all(0 <= number <= MAX_NUMBERS[field] for field, number in found.items()):
        return None
    counts = {field: int(number) for field, number in found.items() if field != "kv_usage"}
    return LoadReport(now, counts.get("queued"), counts.get("running"), found.get("kv_usage"))


def merge_reports(last: LoadReport | None, update: LoadReport) -> LoadReport:
    """Merge two reports. If the update lacks a value, the earlier one stays; a load only for `KEEP_SECONDS`."""
    if last is None or last.read_at > update.read_at:
        return update
    kept_at = last.read_at if last.kept_at is None else last.kept_at
    fresh = update.read_at - kept_at <= KEEP_SECONDS
    return LoadReport(
        update.read_at,
        _first(update.queued, last.queued if fresh else None),
        _first(update.running, last.running if fresh else None),
        _first(update.kv_usage, last.kv_usage if fresh else None),
        # The size of a cache does not become stale.
        _first(update.block_tokens, last.block_tokens),
        _first(update.blocks, last.blocks),
        _first(update.adapters, last.adapters if fresh else None),
        _first(update.queued_by_adapter, last.queued_by_adapter if fresh else None),
        _first(update.started_at, last.started_at),
        interval=max(update.interval, last.interval),
        kept_at=kept_at if fresh else update.read_at,
    )


def _first(new: Value | None, previous: Value | None) -> Value | None:
    return previous if new is None else new


def _read_text(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(",", MAX_METRICS)[:MAX_METRICS]:
        name, _, number = part.partition("=")
        # Python's `float` also accepts "1_0" and digits of other scripts, which are not valid here.
        if number.isascii() and "_" not in number:
            try:
                yield name.strip(), float(number)
            except ValueError:
                continue


def _read_json(text: str) -> Iterator[tuple[str, float]]:
    try:
        read = msgspec.json.decode(text.encode("utf-8", "replace"), type=_Json)
    except (msgspec.DecodeError, RecursionError):
        return
    for name, number in list(read.named_metrics.items())[:MAX_METRICS]:
        if isinstance(number, int | float) and not isinstance(number, bool):
            try:
                yield name, float(number)
            except OverflowError:  # JSON's integers may be arbitrarily large
                continue
