"""Boards -> status: the current knowledge as records for a page or JSON, and the reasons as sentences."""

import re
from typing import Final

from tg_base.telemetry import make_printable
from tg_picker.core import Endpoint, ServerState, saturation
from tg_picker.status.instances_status import (
    AdapterStatus,
    DecisionStatus,
    InstancesStatus,
    PickerStatus,
    PoolStatus,
    RouteStatus,
    ServerStatus,
)
from tg_picker.status.pool_board import PoolBoard, read_recent
from tg_picker.status.pool_boards import PoolBoards
from tg_picker.status.request_record import RequestRecord

_WORDS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"cost ([\d.]+) s",
            "the lowest predicted wait: {0} s until the first token, including what it costs other requests",
        ),
        (r"score ([\d.]+)", "the highest score of the policy: {0}"),
        (r"requests (\d+)", "the fewest requests: {0}"),
        (r"pending (\d+)", "{0} requests there"),
        (r"adapters (\d+)", "{0} adapters in use there"),
        (r"adapter (?:loaded|active)", "the adapter is loaded there"),
        (r"adapter to load", "the adapter has to be loaded there first"),
        (r"affinity", "the adapter is in use there, or an adapter slot is free"),
        (r"random", "chosen at random"),
        (r"turn", "its turn"),
        (r"queue below threshold", "its queue is short"),
        (r"all queues long", "all queues are long"),
        (r"least queue", "its queue is the shortest"),
        (r"sheddable", "a request that may be refused"),
        (r"room", "it has capacity"),
        (r"no-endpoints", "no server of the pool is ready"),
        (r"model-not-found", "no route, rewrite or server knows the model"),
        (r"saturated", "all servers are busy, and the request may be refused"),
        (r"queue-full", "no more requests may wait"),
        (r"displaced", "a request that goes first took its place in the queue"),
        (r"expired", "it waited for a server as long as it may"),
        (r"objective-out-of-reach", "no server can meet the objective now, and the request may be refused"),
    )
)

MAX_ADAPTERS_SHOWN: Final = 32
"""Most adapters of a server that are listed by name."""


def read_status(boards: PoolBoards) -> InstancesStatus:
    """The current state of all boards. Clients' names are truncated, but not escaped."""
    return InstancesStatus(tuple(map(_read_board, boards.shown)), _read_routes(boards))


def _read_board(board: PoolBoard) -> PickerStatus:
    now = board.clock()
    board.scheduler.expire(now)
    pools = tuple(_read_pool(board, name, members, now) for name, members in board.pools.view.members.items())
    decisions = tuple(_read_decision(record, now) for record in reversed(board.decisions))
    return PickerStatus(board.name, board.policy, pools, tuple(board.queues()), decisions)


def _read_pool(board: PoolBoard, name: str, members: tuple[Endpoint, ...], now: float) -> PoolStatus:
    states = [board.scheduler.server(each) for each in members]
    failing, unreachable = board.pools.failing, board.pools.unreachable
    servers = tuple(
        _read_server(state, failing.get(state.endpoint.address, ""), state.endpoint.address in unreachable, now)
        for state in states
    )
    return PoolStatus(name, saturation(states, now) if states else None, servers)


def _read_server(state: ServerState, problem: str, is_unreachable: bool, now: float) -> ServerStatus:
    endpoint, report = state.endpoint, state.report
    return ServerStatus(
        endpoint.name or endpoint.address,
        endpoint.address,
        "unreachable" if is_unreachable else "stale" if state.is_stale else "ready",
        problem,
        endpoint.models,
        state.requests,
        state.unstarted,
        state.uncached_tokens,
        report.queued if report else None,
        report.running if report else None,
        report.kv_usage if report else None,
        round(now - report.read_at, 3) if report else None,
        state.adapters.slots,
        _read_adapters(state, now),
        len(state.adapters),
        len(state.prefixes),
        state.prefixes.source,
        round(state.speed.output_token_seconds, 6),
    )


def _read_adapters(state: ServerState, now: float) -> tuple[AdapterStatus, ...]:
    resident = state.report.adapters.resident if state.report and state.report.adapters else None
    active = state.active_adapters
    newest = list(state.adapters.used_at.items())[: -MAX_ADAPTERS_SHOWN - 1 : -1]
    return tuple(
        AdapterStatus(
            make_printable(name),
            state.adapter_requests.get(name, 0),
            (resident or {}).get(name, "believed"),
            0.0 if name in active else round(max(now - used_at, 0.0), 3),
        )
        for name, used_at in newest
    )


def _read_routes(boards: PoolBoards) -> tuple[RouteStatus, ...]:
    recent = read_recent(boards.shown)
    return tuple(
        RouteStatus(
            route,
            kind,
            slo.seconds,
            slo.share,
            count.total,
            round(count.share, 4) if count.total else None,
            last.total if (last := recent.get((route, kind))) else 0,
            round(last.share, 4) if last else None,
        )
        for (route, kind), (slo, count) in boards.totals.routes.items()
    )


def _read_decision(record: RequestRecord, now: float) -> DecisionStatus:
    destination = record.facts.destination
    return DecisionStatus(
        round(now - record.picked_at, 3),
        make_printable(record.facts.request),
        make_printable(record.facts.model),
        make_printable(destination.model) if destination else "",
        None if record.request.adapter is None else make_printable(record.request.adapter),
        destination.pool if destination else "",
        destination.route if destination else "",
        record.request.priority,
        record.request.prompt_tokens,
        record.server,
        explain(record),
        record.outcome or "running",
        record.first_token_seconds,
        record.seconds,
        record.usage.output_tokens if record.usage else None,
    )


def explain(record: RequestRecord) -> tuple[str, ...]:
    """Why a request went where it did, in sentences. An unknown reason is shown unchanged."""
    facts = record.facts
    sentences = [_describe(reason) for reason in record.reasons if not reason.startswith("cached blocks")]
    if record.cached_tokens:
        sentences.append(
            f"{record.cached_tokens} of {record.request.prompt_tokens} tokens of the prompt are in its cache"
        )
    if facts.eligible == 1:
        sentences.append("the only server that it could go to")
    elif facts.eligible:
        sentences.append(f"chosen among {facts.eligible} servers")
    if facts.unreachable:
        sentences.append(f"{facts.unreachable} left out, since nobody can reach them")
    if record.moved:
        sentences.append("the picked server did not answer, so another one did")
    return tuple(sentences)


def _describe(reason: str) -> str:
    for pattern, words in _WORDS:
        if (found := pattern.fullmatch(reason)) is not None:
            return words.format(*found.groups())
    return reason
