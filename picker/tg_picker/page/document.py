"""Status of all pickers -> the HTML page. `element` escapes every text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tg_picker.status import (
    AdapterStatus,
    DecisionStatus,
    InstancesStatus,
    PickerStatus,
    PoolStatus,
    QueueStatus,
    RouteStatus,
    ServerStatus,
)


class Html(str):
    """Text that is already HTML. Only this module creates it."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Html:
    """An element with its end tag. Children that are not `Html`, and all values of attributes, are escaped.

    Args:
        name: the name of the element.
        children: texts and elements.
        attributes: by name; `_` stands for `-`, and a trailing `_` is dropped.
    """
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{written}>{inner}</{name}>")


_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Model servers</title><noscript><meta http-equiv="refresh" content="5"></noscript>
"""
_NOTHING: Final = "\u2013"

_Column = tuple[str, bool]
"""A heading, and whether its column has numbers."""
_SERVERS: Final[Sequence[_Column]] = (
    ("server", False),
    ("state", False),
    ("placed", True),
    ("without a first token", True),
    ("queue", True),
    ("running", True),
    ("KV cache", True),
    ("adapters", False),
    ("cached blocks", True),
    ("last report", True),
)
_DECISIONS: Final[Sequence[_Column]] = (
    ("when", True),
    ("model", False),
    ("server", False),
    ("why", False),
    ("first token", True),
    ("end", True),
    ("outcome", False),
    ("request", False),
)
_ROUTES: Final[Sequence[_Column]] = (
    ("route", False),
    ("objective", False),
    ("required", True),
    ("met", True),
    ("answers", True),
    ("met in the last minute", True),
)
_QUEUES: Final[Sequence[_Column]] = (("pool", False), ("priority", True), ("requests", True), ("oldest", True))


def write_document(status: InstancesStatus, style: str, script: str) -> str:
    """The whole page.

    Args:
        status: the content.
        style: the page's CSS, without a closing tag in it.
        script: the page's JavaScript, without a closing tag in it.
    """
    shown: list[Html] = [_show_picker(picker) for picker in status.pickers]
    if status.routes:
        rows = (_show_route(route) for route in status.routes)
        shown.append(element("section", element("h2", "Objectives of routes"), _table(_ROUTES, rows)))
    if not status.pickers:
        shown.append(element("p", "No pool of model servers runs in this process."))
    body = element("header", element("h1", "Model servers"), element("p", "", id="state")) + element("main", *shown)
    return f"{_HEAD}<style>{style}</style></head><body>{body}<script>{script}</script></body></html>"


def _show_picker(picker: PickerStatus) -> Html:
    parts = [element("h2", picker.name), element("p", f"Servers are picked by the policy {picker.policy}.")]
    parts += [_show_pool(pool) for pool in picker.pools]
    if picker.queues:
        parts += [element("h3", "Requests that wait"), _table(_QUEUES, map(_show_queue, picker.queues))]
    parts.append(element("h3", f"The last {_count(len(picker.decisions), 'decision')}"))
    parts.append(_table(_DECISIONS, map(_show_decision, picker.decisions)))
    return element("section", *parts)


def _show_pool(pool: PoolStatus) -> Html:
    full = "it has no server" if pool.saturation is None else f"{pool.saturation:.0%} full"
    heading = element("h3", f"Pool {pool.name}: {_count(len(pool.servers), 'server')}, {full}")
    return element("div", heading, _table(_SERVERS, map(_show_server, pool.servers)))


def _show_server(server: ServerStatus) -> Sequence[str]:
    state = server.state if not server.problem else f"{server.state}: {server.problem}"
    name = server.name if server.name == server.address else f"{server.name} ({server.address})"
    return (
        name,
        state if server.state == "ready" and not server.problem else element("span", state, class_="bad"),
        str(server.requests),
        str(server.unstarted),
        _number(server.queued),
        _number(server.running),
        _NOTHING if server.kv_usage is None else f"{server.kv_usage:.0%}",
        _show_adapters(server),
        f"{server.cached_blocks}, {server.cache_source}",
        _ago(server.report_age_seconds),
    )


def _show_adapters(server: ServerStatus) -> Html:
    places = "" if server.adapter_slots is None else f" of {server.adapter_slots}"
    more = server.adapters_loaded - len(server.adapters)
    items = [element("li", _describe_adapter(adapter)) for adapter in server.adapters]
    items += [element("li", f"and {more} more")] if more > 0 else []
    return element("div", f"{server.adapters_loaded}{places}", element("ul", *items) if items else "")


def _describe_adapter(adapter: AdapterStatus) -> str:
    idle = f"idle for {_seconds(adapter.idle_seconds)}" if adapter.idle_seconds else "in use"
    what = _count(adapter.requests, "request") if adapter.requests else idle
    return f"{adapter.name}: {what}, {adapter.loaded}"


def _show_queue(queue: QueueStatus) -> Sequence[str]:
    return queue.pool, str(queue.priority), str(queue.requests), _seconds(queue.oldest_seconds)


def _show_route(route: RouteStatus) -> Sequence[str]:
    return (
        route.route or "(none)",
        f"{route.objective} within {route.seconds:g} s",
        f"{route.promised_share:.2%}",
        _show_share(route.kept_share, route.promised_share),
        str(route.requests),
        _show_share(route.recent_share, route.promised_share),
    )


def _show_share(kept: float | None, promised: float) -> str:
    if kept is None:
        return _NOTHING
    shown = f"{kept:.2%}"
    return shown if kept >= promised else element("span", shown, class_="bad")


def _show_decision(decision: DecisionStatus) -> Sequence[str]:
    named = decision.model or "(none)"
    model = named if decision.target in {"", decision.model} else f"{named} as {decision.target}"
    kind = f", adapter {decision.adapter}" if decision.adapter else ""
    route = f", route {decision.route}" if decision.route else ""
    tokens = "" if decision.output_tokens is None else f", {decision.output_tokens} tokens"
    is_well = decision.outcome in {"answered", "running"}
    outcome = decision.outcome + tokens
    return (
        _ago(decision.seconds_ago),
        f"{model}{kind}{route}, priority {decision.priority}",
        decision.server or _NOTHING,
        element("ul", *(element("li", reason) for reason in decision.reasons)),
        _seconds(decision.first_token_seconds),
        _seconds(decision.seconds),
        outcome if is_well else element("span", outcome, class_="bad"),
        decision.request or _NOTHING,
    )


def _table(columns: Sequence[_Column], rows: Iterable[Sequence[str]]) -> Html:
    heads = [element("th", title, class_=_kind(is_number)) for title, is_number in columns]
    lines = [
        element(
            "tr",
            *(
                element("td", cell, class_=_kind(is_number), data_label=title)
                for (title, is_number), cell in zip(columns, row, strict=True)
            ),
        )
        for row in rows
    ]
    return element("table", element("thead", element("tr", *heads)), element("tbody", *lines))


def _kind(is_number: bool) -> str:
    return "number" if is_number else "text"


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


def _number(value: int | None) -> str:
    return _NOTHING if value is None else str(value)


def _ago(seconds: float | None) -> str:
    return _NOTHING if seconds is None else f"{_seconds(seconds)} ago"


def _seconds(seconds: float | None) -> str:
    return _NOTHING if seconds is None else f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.0f} s"
