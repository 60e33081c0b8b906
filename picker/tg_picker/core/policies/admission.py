"""Scheduler -> admission: whether a sheddable request is refused to protect the others."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from tg_picker.core.interface import InstanceRequest
from tg_picker.core.state import ServerState

MAX_QUEUE = 5
"""Queued requests from which on a server counts as saturated."""
MAX_USED_SHARE = 0.8
"""Share of a server's KV cache, or of its concurrency limit, above which it gets no sheddable requests."""
FRESH_LOOKS = 4
"""A server counts as saturated if its report is older than this many intervals of its scrapes."""
PROBABILITY_FACTOR = 300.0
PROBABILITY_POWER = 5
AdmissionRule = Literal["always", "threshold", "probabilistic"]


Admission = Callable[[InstanceRequest, Sequence[ServerState], float, Random], bool]
"""An admission rule: whether a request may be placed on one of the servers now."""


def _admit_always(request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
    """Refuse nothing, and leave the decision to the policy."""
    return True


def _admit_below_threshold(
    request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random
) -> bool:
    """Refuse requests of a priority below 0 while the pool is saturated."""
    return request.priority >= 0 or saturation(servers, now) < 1.0


def _admit_by_chance(request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
    """Refuse requests of a priority below 0 with a probability that grows as the pool fills."""
    if request.priority >= 0:
        return True
    probability = min(1.0, PROBABILITY_FACTOR * saturation(servers, now) ** PROBABILITY_POWER)
    return random.random() >= probability


def saturation(servers: Sequence[ServerState], now: float) -> float:
    """The mean over all servers of the higher of two ratios: queue length to `MAX_QUEUE`, KV cache to `MAX_USED_SHARE`.

    A server with a stale report counts as 1.

    A server that never reported is judged by our own count of its requests without a first token.
    """
    return sum(_fullness(server, now) for server in servers) / len(servers)


def _fullness(server: ServerState, now: float) -> float:
    report = server.report
    if server.is_stale or (report is not None and now - report.read_at > FRESH_LOOKS * report.interval):
        return 1.0
    return max(server.queued / MAX_QUEUE, server.kv_usage / MAX_USED_SHARE)


ADMISSIONS: dict[str, Admission] = {
    "always": _admit_always,
    "threshold": _admit_below_threshold,
    "probabilistic": _admit_by_chance,
}
"""The rules by their names in the configuration; each name is an `AdmissionRule`."""
