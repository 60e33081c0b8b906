"""What gateways do now -> tables of text that fit into 79 columns: for a screen, and for a pipe."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tg_schema.live import LiveDocument, LiveGateway, LiveStream

_Columns = Sequence[tuple[str, str]]
"""The heads, each with the alignment and width of its column."""
_GATEWAYS: Final = (
    *(("#", ">2"), ("GATEWAY", "<30"), ("STREAMS", ">7"), ("WAIT", ">5"), ("TOK/S", ">6"), ("ERR", ">4")),
    *(("VERSION", "<10"), ("STATE", "<8")),
)
_QUEUES: Final = (
    *(("#", ">2"), ("FLOW/SERVICE", "<23"), ("MODEL", "<12"), ("RUN/SLOTS", ">9"), ("WAIT", ">5")),
    *(("TOK/S", ">6"), ("P50", ">5"), ("P99", ">5"), ("ERR", ">4")),
)
_PROCESSORS: Final = (("PROCESSOR", "<20"), ("SERVES", "<23"), ("MODEL", "<14"), ("RUN/SLOTS", ">9"), ("STATE", "<9"))
_POOLS: Final = (("#", ">2"), ("POOL", "<39"), ("SERVERS", ">9"), ("RUN", ">6"), ("WAIT", ">6"))
_STREAMS: Final = (
    *(("#", ">2"), ("STREAM", "<9"), ("AGE", ">5"), ("TOKENS", ">6"), ("KEY", "<13")),
    *(("FLOW/SERVICE", "<23"), ("MODEL", "<14")),
)


Documents = Mapping[int, LiveDocument]
"""The document of each gateway by the gateway's number, which is in the column `#`; the newest is the first."""


def write_figures(documents: Documents) -> list[str]:
    """The lines of gateways, queues, processors and pools."""
    shown = _choose(documents)
    gateways = [
        (
            *(place, row.name or "-", row.streams, row.waiting, f"{row.tokens:.0f}", row.errors, row.version),
            "leaving" if row.draining else "ready",
        )
        for place, each in shown
        for row in each.gateways.values() or (_describe_gateway(each),)
        if row
    ]
    queues = [
        (
            *(place, f"{row.flow}/{row.service}", row.failing or row.model or "-", f"{row.running}/{row.capacity}"),
            *(row.waiting, f"{row.tokens:.0f}", *map(_write_seconds, (row.first_p50, row.first_p99)), row.errors),
        )
        for place, each in shown
        for row in each.queues.values()
        if row
    ]
    processors = {
        name: (name, row.queues, row.model or "-", f"{row.running}/{row.capacity}", row.state)
        for _, each in shown
        for name, row in each.processors.items()
        if row
    }
    pools = [
        (place, name, f"{row.ready}/{row.servers}", row.running, row.waiting)
        for place, each in shown
        for name, row in each.pools.items()
        if row
    ]
    tables: list[tuple[_Columns, Iterable[Sequence[object]]]] = [(_GATEWAYS, gateways), (_QUEUES, queues)]
    tables += [(_PROCESSORS, processors.values()), (_POOLS, pools)]
    return [line for columns, rows in tables if rows for line in ("", *_write(columns, rows))][1:]


def write_streams(documents: Documents) -> tuple[list[str], dict[tuple[int, str], str]]:
    """The lines above the streams, and the line of each stream by its document's number and its id, oldest first."""
    shown = _choose(documents)
    # Without an administrator's key, a document names no gateways, so only its streams tell which bus it is from.
    found = {
        name: (each.at - row.since, place, row)
        for place, each in reversed(shown)
        for name, row in each.streams.items()
        if row
    }
    ordered = sorted(found.items(), key=lambda each: -each[1][0])
    head, *lines = _write(_STREAMS, [_list_stream(place, name, age, row) for name, (age, place, row) in ordered])
    total = len(found) + sum(_describe_gateway(each).streams - len(each.streams) for _, each in shown)
    listed = f"{total} streams" + (f", of which the oldest {len(found)} are listed" if len(found) < total else "")
    return [listed, head], {(place, name): line for (name, (_, place, _)), line in zip(ordered, lines, strict=True)}


def _choose(documents: Documents) -> list[tuple[int, LiveDocument]]:
    """One document for each bus, since it shows all gateways there."""
    chosen: list[tuple[int, LiveDocument]] = []
    for place, document in documents.items():
        if all(other.gateways.keys().isdisjoint(document.gateways) for _, other in chosen):
            chosen.append((place, document))
    return chosen


def _describe_gateway(document: LiveDocument) -> LiveGateway:
    """The gateway that sent a document without gateways: it is of an older version, or the key may not see them."""
    return LiveGateway(document.gateway, document.version, document.draining, document.totals.get("streams", 0))


def _list_stream(place: int, name: str, age: float, row: LiveStream) -> Sequence[object]:
    seconds = max(int(age), 0)
    shown = f"{seconds}s" if seconds < 600 else f"{seconds // 60}m" if seconds < 36_000 else f"{seconds // 3600}h"
    tokens = row.tokens if row.begun else "-"
    return place, name, shown, tokens, row.key or "-", f"{row.flow}/{row.service}", row.model or "-"


def _write_seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"[:5]


def _write(columns: _Columns, rows: Iterable[Sequence[object]]) -> list[str]:
    """The heads, and a line for each row."""
    return [
        " ".join(
            f"{_fit(str(cell), int(form[1:])):{form}}" for cell, (_, form) in zip(cells, columns, strict=True)
        ).rstrip()
        for cells in ([head for head, _ in columns], *rows)
    ]


def _fit(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}\u2026"
