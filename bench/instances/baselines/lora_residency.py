"""Scheduling context -> server: llm-d-router's residency filter and load state scorer for adapters (5.8)."""

from zlib import crc32

from bench.instances.baselines.scoring import best_of, prefix_scores, queue_scores
from bench.instances.baselines.weighted import KV_WEIGHT, PREFIX_WEIGHT, QUEUE_WEIGHT
from tg_picker.core import Choice, Residency, SchedulingContext, ServerState

STATE_WEIGHT = 2.0
GPU_SCORE, CPU_SCORE, FREE_SLOT_SCORE, EVICTABLE_SCORE, SATURATED_SCORE = 1.0, 0.7, 0.6, 0.3, 0.0
PLACEMENT_BONUS = 0.03
HEADROOM_BONUS = 0.03
MAX_QUEUE = 8
MAX_KV_USAGE = 0.8


class LoraResidency:
    """Servers that have the adapter loaded while one of them has room; a new copy only when all are saturated.

    Where a server tells no residency, the adapters that we placed there lately count as loaded.
    """

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by what the servers tell of adapters, queues and cache."""
        adapter = context.request.adapter
        servers, reason = list(context.servers), "base model"
        if adapter is not None:
            servers, reason = _filter(servers, adapter)
        home = _home(servers, adapter)
        queues, prefixes = queue_scores(servers), prefix_scores(context.request.prefix, servers)
        scores = [
            QUEUE_WEIGHT * queue
            + KV_WEIGHT * (1 - server.kv_usage)
            + PREFIX_WEIGHT * prefix
            + STATE_WEIGHT * _state_score(server, adapter, server is home)
            for server, queue, prefix in zip(servers, queues, prefixes, strict=True)
        ]
        best = best_of(servers, scores, context.random)
        return Choice(best, (reason, f"score {max(scores):.3f}"))


def _filter(servers: list[ServerState], adapter: str) -> tuple[list[ServerState], str]:
    levels = [(server, _level(server, adapter)) for server in servers]
    homes = [server for server, level in levels if level == "gpu"]
    if not homes:
        return servers, "no home"
    if not all(map(_is_saturated, homes)):
        return homes, "sticky"
    for wanted in ("cpu", None):
        spare = [server for server, level in levels if level == wanted and not _is_saturated(server)]
        if spare:
            return spare, "spread"
    return homes, "fleet saturated"


def _level(server: ServerState, adapter: str) -> Residency | None:
    resident = None if server.report is None or server.report.adapters is None else server.report.adapters.resident
    if resident is None:
        return "gpu" if adapter in server.adapters.used_at else None
    return resident.get(adapter)


def _is_saturated(server: ServerState) -> bool:
    return server.queued > MAX_QUEUE or server.kv_usage > MAX_KV_USAGE


def _home(servers: list[ServerState], adapter: str | None) -> ServerState | None:
    """One server by rendezvous hashing, so that the first requests of an adapter do not each load it elsewhere."""
    if adapter is None:
        return None
    return max(servers, key=lambda server: crc32(f"{adapter}\n{server.endpoint.address}".encode()))


def _state_score(server: ServerState, adapter: str | None, is_home: bool) -> float:
    slots = None if server.report is None or server.report.adapters is None else server.report.adapters.slots
    loaded, busy = _loaded(server), len(server.active_adapters)
    if adapter is None:
        return 1.0 if not slots else max(slots - busy, 0) / slots
    level = _level(server, adapter)
    free = 1.0 if not slots else max(slots - loaded, 0) / slots
    if level is not None:
        tier = GPU_SCORE if level == "gpu" else CPU_SCORE
    elif free > 0:
        tier = FREE_SLOT_SCORE
    else:
        tier = EVICTABLE_SCORE if slots and busy < slots else SATURATED_SCORE
    bonus = HEADROOM_BONUS * free + (PLACEMENT_BONUS if is_home and level != "gpu" else 0.0)
    return tier * (1 - PLACEMENT_BONUS - HEADROOM_BONUS) + bonus


def _loaded(server: ServerState) -> int:
    resident = None if server.report is None or server.report.adapters is None else server.report.adapters.resident
    return len(server.adapters) if resident is None else sum(level == "gpu" for level in resident.values())
