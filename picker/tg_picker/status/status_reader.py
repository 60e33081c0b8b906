"""Boards -> status: what is known at this moment, in records that a page or JSON is made of."""

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
from tg_picker.status.reason_words import explain
from tg_picker.status.request_record import RequestRecord

MAX_ADAPTERS_SHOWN: Final = 32
"""How many adapters of a server are listed by name."""


def read_status(boards: PoolBoards) -> InstancesStatus:
    """The present state of all boards. Names of clients are cut, and not escaped."""
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
            count.slo.seconds,
            count.slo.share,
            count.requests,
            round(count.kept / count.requests, 4) if count.requests else None,
            last.total if (last := recent.get((route, kind))) else 0,
            round(last.share, 4) if last else None,
        )
        for (route, kind), count in boards.totals.routes.items()
    )


def _read_decision(record: RequestRecord, now: float) -> DecisionStatus:
    destination = record.facts.destination
    return DecisionStatus(
        round(now - record.picked_at, 3),
        make_printable(record.facts.request),
        make_printable(record.facts.model),
        make_printable(destination.model) if destination else "",
        None if record.adapter is None else make_printable(record.adapter),
        destination.pool if destination else "",
        destination.route if destination else "",
        record.priority,
        record.prompt_tokens,
        record.server,
        explain(record),
        record.outcome or "running",
        record.first_token_seconds,
        record.seconds,
        record.usage.output_tokens if record.usage else None,
    )
