"""Scheduling context -> server: the filter tree of the reference implementation before v1 (5.1, 5.2)."""

from tg_picker.core import Choice, Refusal, SchedulingContext, ServerState

MAX_QUEUE_FOR_AFFINITY = 128
"""Queued requests below which adapters matter more than queues, from v0.3 on."""
FIRST_MAX_QUEUE_FOR_AFFINITY = 50
"""The same in v0.1."""
AFFINITY_PROBABILITY = 0.999
"""How often, from v0.3 on, a server that has the adapter is preferred to one with a free slot."""
MAX_QUEUE_FOR_SHEDDABLE = 5
MAX_KV_USAGE_FOR_SHEDDABLE = 0.8
SHED_RETRY_SECONDS = 1.0


class FilterTree:
    """Filters one after the other: queues, adapters, KV cache; by chance among those that are left.

    Requests of a priority below 0 are sheddable: refused unless a server has a short queue and a free cache.

    Args:
        max_queue: queued requests below which adapters come first.
        affinity: how often a server with the adapter is preferred to one with a free slot.
    """

    def __init__(self, max_queue: int = MAX_QUEUE_FOR_AFFINITY, affinity: float = AFFINITY_PROBABILITY) -> None:
        self._max_queue = max_queue
        self._affinity = affinity

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        """Choose by what the servers tell of queues, adapters and cache."""
        servers = list(context.servers)
        if context.request.priority < 0:
            return self._sheddable(context, servers)
        short = [server for server in servers if server.queued < self._max_queue]
        if short:
            kept = _least_queued(self._with_affinity(context, short))
            return Choice(context.random.choice(_least_cached(kept)), ("queue below threshold", "affinity"))
        kept = _low_cost(_least_queued(servers), context.request.adapter)
        return Choice(context.random.choice(_least_cached(kept)), ("all queues long", "least queue"))

    def _sheddable(self, context: SchedulingContext, servers: list[ServerState]) -> Choice | Refusal:
        room = [
            server
            for server in servers
            if server.queued <= MAX_QUEUE_FOR_SHEDDABLE and server.kv_usage <= MAX_KV_USAGE_FOR_SHEDDABLE
        ]
        if not room:
            return Refusal("saturated", SHED_RETRY_SECONDS)
        kept = _low_cost(_least_queued(room), context.request.adapter)
        return Choice(context.random.choice(_least_cached(kept)), ("sheddable", "room"))

    def _with_affinity(self, context: SchedulingContext, servers: list[ServerState]) -> list[ServerState]:
        adapter = context.request.adapter
        if adapter is None:
            return servers
        active = [server for server in servers if adapter in server.active_adapters]
        free = [server for server in servers if adapter not in server.active_adapters and _has_free_slot(server)]
        if active and free:
            certain = self._affinity >= 1.0
            return active if certain or context.random.random() < self._affinity else free
        return active or free or servers


def first_filter_tree() -> FilterTree:
    """The tree as of v0.1."""
    return FilterTree(FIRST_MAX_QUEUE_FOR_AFFINITY, 1.0)


def _low_cost(servers: list[ServerState], adapter: str | None) -> list[ServerState]:
    if adapter is None:
        return servers
    return [server for server in servers if adapter in server.active_adapters or _has_free_slot(server)] or servers


def _least_queued(servers: list[ServerState]) -> list[ServerState]:
    return _lowest_band(servers, [float(server.queued) for server in servers])


def _least_cached(servers: list[ServerState]) -> list[ServerState]:
    return _lowest_band(servers, [server.kv_usage for server in servers])


def _lowest_band(servers: list[ServerState], values: list[float]) -> list[ServerState]:
    """The servers whose value is in the lowest of as many bands as there are servers."""
    least, most = min(values), max(values)
    bound = least + (most - least) / len(values)
    return [server for server, value in zip(servers, values, strict=True) if value <= bound]


def _has_free_slot(server: ServerState) -> bool:
    report = server.report
    if report is None or report.adapters is None or report.adapters.slots is None:
        return True
    return len(server.active_adapters) < report.adapters.slots
