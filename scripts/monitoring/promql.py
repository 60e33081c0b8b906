"""Rows of the tables of metrics -> expressions of Prometheus. A name or label that no row has is an error."""

import re
from collections.abc import Iterator
from typing import Final

from tg_base.telemetry import Label, Metric
from tg_base.telemetry.metrics import METRICS as BASE
from tg_gateway.telemetry.metrics import METRICS as GATEWAY
from tg_picker.pools.metrics import METRICS as PICKER

TABLES: Final = {"transport": BASE, "gateway": GATEWAY, "pools": PICKER}
ROWS: Final = {row.name: row for table in TABLES.values() for row in table.rows}
_OF_OTHERS: Final = (
    Metric("up", "gauge", "Prometheus' own", (Label("job", ""), Label("instance", ""))),
    Metric("process_resident_memory_bytes", "gauge", "The client library's"),
    Metric("process_open_fds", "gauge", "The client library's"),
    Metric("process_cpu_seconds_total", "counter", "The client library's"),
    Metric("pulsar_subscription_back_log", "gauge", "Apache Pulsar's", (Label("subscription", ""), Label("topic", ""))),
)
KNOWN: Final = {**ROWS, **{row.name: row for row in _OF_OTHERS}}
SAMPLES: Final = {sample: row for row in KNOWN.values() for sample in row.samples}
TARGET_LABELS: Final = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""
_WORDS: Final = frozenset(
    {"sum", "max", "min", "rate", "increase", "histogram_quantile", "clamp_min", "topk", "vector"}
    | {"by", "and", "or", "unless", "offset"}
)
"""The functions and words of Prometheus that we use."""
_SELECTOR: Final = re.compile(r"([A-Za-z_:][\w:]*)\s*\{([^}]*)\}|\bby\s*\(([^)]*)\)")
_MATCHER: Final = re.compile(r'([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"')
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_:][\w:]*")


def total(name: str, *by: str, where: str = "", over: str = "5m", function: str = "rate") -> str:
    """The growth of a counter, summed by labels."""
    return f"sum{_by(by)}({function}({name}{where and f'{{{where}}}'}[{over}]))"


def grown(name: str, *by: str, where: str = "", over: str = "10m") -> str:
    """The increase of a counter whose series begin with the first event, which `increase` alone does not see."""
    known = f"{name}{where and f'{{{where}}}'}"
    increase = total(name, *by, where=where, over=over, function="increase")
    return f"({increase} > 0 or sum{_by(by)}({known} unless {known} offset {over}))"


def quantile(share: float, name: str, *by: str, where: str = "", over: str = "5m") -> str:
    """A quantile of a histogram, by labels."""
    return f"histogram_quantile({share:g}, {total(f'{name}_bucket', 'le', *by, where=where, over=over)})"


def level(name: str, *by: str, where: str = "", function: str = "sum") -> str:
    """A gauge, by labels."""
    return f"{function}{_by(by)}({name}{where and f'{{{where}}}'})"


def equal(label: str, value: str) -> str:
    """What selects series."""
    return f'{label}="{value}"'


def find_faults(expression: str, also: frozenset[str] = frozenset()) -> Iterator[str]:
    """What an expression names and no row has; `also` are further names of series, with any labels."""
    text = _STRING.sub('""', expression)
    inside = {name for found in _SELECTOR.finditer(text) for name in _NAME.findall(found[2] or found[3] or "")}
    outside = re.sub(r"\[[^\]]*\]", "", _SELECTOR.sub(lambda found: found[1] or "", text))
    series = set(_NAME.findall(outside)) - _WORDS
    yield from (f"no metric is called {name}" for name in sorted(series - SAMPLES.keys() - also))
    if series & also:
        return
    allowed = TARGET_LABELS | {"le"} if any(name.endswith("_bucket") for name in series) else TARGET_LABELS
    allowed = allowed.union(*(SAMPLES[name].label_names for name in series & SAMPLES.keys()))
    yield from (f"no metric of it has the label {label}" for label in sorted(inside - allowed))
    for name, matchers, _ in _SELECTOR.findall(expression):
        if name in SAMPLES:
            wrong = set(_MATCHER.findall(matchers)) - {*SAMPLES[name].label_names, *TARGET_LABELS, "le"}
            yield from (f"{name} has no label {label}" for label in sorted(wrong))


def checked(expression: str, also: frozenset[str] = frozenset()) -> str:
    """The expression.

    Raises:
        ValueError: it names what no row has.
    """
    if faults := list(find_faults(expression, also)):
        raise ValueError(f"{'; '.join(faults)}: {expression}")
    return expression


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""
