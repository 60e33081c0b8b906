"""Context -> server: the rule of the proposal "LLM instance gateway", section "Pod selection algorithm in PoC"."""

from tg_picker.core import Choice, SchedulingContext, ServerState

MAX_PENDING_PER_ADAPTER = 5
"""Pending requests of an adapter below which its server takes one more. The proposal names a threshold, not its value;
this one is the queue threshold of its successor."""


class SeedPolicy:
    """Of the servers that have the adapter, the fullest below a threshold; else the one with the fewest adapters.

    The fullest is taken so that an adapter does not flop between servers.
    """

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by active adapters, and by pending requests of the adapter and of all."""
        adapter, random = context.request.adapter, context.random
        if adapter is not None:
            counts = [
                (server, _pending(server, adapter)) for server in context.servers if adapter in server.active_adapters
            ]
            below = [(server, pending) for server, pending in counts if pending < MAX_PENDING_PER_ADAPTER]
            if below:
                most = max(pending for _, pending in below)
                ties = [server for server, pending in below if pending == most]
                return Choice(random.choice(ties), ("adapter active", f"pending {most}"))
        ranks = [(len(server.active_adapters), server.queued) for server in context.servers]
        least = min(ranks)
        ties = [server for server, rank in zip(context.servers, ranks, strict=True) if rank == least]
        return Choice(random.choice(ties), (f"adapters {least[0]}", f"pending {least[1]}"))


def _pending(server: ServerState, adapter: str) -> int:
    """Requests of the adapter that wait, as told; else its share of ours there, of all that wait."""
    report = server.report
    if report is None or report.queued_by_adapter is None:
        return round(server.queued * server.adapter_requests.get(adapter, 0) / max(server.requests, 1))
    return report.queued_by_adapter.get(adapter, 0)
