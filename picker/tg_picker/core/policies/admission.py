"""Scheduler -> admission: whether a sheddable request is refused to protect the others (5.4, 5.7)."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, Protocol

from tg_picker.core.interface import InstanceRequest
from tg_picker.core.state import ServerState

MAX_QUEUE = 5
"""Queued requests at which a server counts as saturated."""
MAX_USED_SHARE = 0.8
"""Share of a server's KV cache, or of its concurrency limit, from which on it is spared for what may not be shed."""
FRESH_LOOKS = 4
"""A server counts as saturated if its report is older than this many intervals of its scrapes."""
PROBABILITY_FACTOR = 300.0
PROBABILITY_POWER = 5
AdmissionRule = Literal["always", "threshold", "probabilistic"]


class Admission(Protocol):
    """A rule that refuses."""

    def admits(self, request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
        """Whether the request may be placed."""
        ...


class AlwaysAdmit:
    """Refuses nothing: the policy decides."""

    def admits(self, request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
        """Always."""
        return True


class ThresholdAdmission:
    """Refuses requests of a priority below 0 while the pool is saturated."""

    def admits(self, request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
        """Whether the request is not sheddable, or the pool not saturated."""
        return request.priority >= 0 or saturation(servers, now) < 1.0


class ProbabilisticAdmission:
    """Refuses requests of a priority below 0 with a probability that grows as the pool fills."""

    def admits(self, request: InstanceRequest, servers: Sequence[ServerState], now: float, random: Random) -> bool:
        """Whether the request is not sheddable, or wins the draw."""
        if request.priority >= 0:
            return True
        probability = min(1.0, PROBABILITY_FACTOR * saturation(servers, now) ** PROBABILITY_POWER)
        return random.random() >= probability


def saturation(servers: Sequence[ServerState], now: float) -> float:
    """The mean over all servers of the higher of two ratios: queue to its bound, cache to its bound.

    A stale server counts 1.

    A server that never reported is judged by our own count of requests that wait for a first token.
    """
    return sum(_fullness(server, now) for server in servers) / len(servers)


def _fullness(server: ServerState, now: float) -> float:
    report = server.report
    if server.is_stale or (report is not None and now - report.read_at > FRESH_LOOKS * report.interval):
        return 1.0
    return max(server.queued / MAX_QUEUE, server.kv_usage / MAX_USED_SHARE)


ADMISSIONS: dict[str, Callable[[], Admission]] = {
    "always": AlwaysAdmit,
    "threshold": ThresholdAdmission,
    "probabilistic": ProbabilisticAdmission,
}
"""What makes a rule, by its name in the configuration: an `AdmissionRule`."""
