"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable
from operator import attrgetter

from tg_picker.core.policies.policy import Choice, Policy, SchedulingContext
from tg_picker.core.policies.predicted_wait import PredictedWait


class RoundRobin:
    """The servers in turn, in the order in which they are handed in."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose the next one."""
        server = context.servers[self._turn % len(context.servers)]
        self._turn += 1
        return Choice(server, ("turn",))


requests_of = attrgetter("requests")


class LeastRequest:
    """The server with the fewest requests in flight."""

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by our own count, so that it works without a single metric."""
        servers = context.servers
        fewest = min(map(requests_of, servers))
        ties = [server for server in servers if server.requests == fewest]
        return Choice(context.random.choice(ties), (f"requests {fewest}",))


POLICIES: dict[str, Callable[[], Policy]] = {
    "round-robin": RoundRobin,
    "least-request": LeastRequest,
    "predicted-wait": PredictedWait,
}
"""What makes a policy, by its name in the configuration."""
DEFAULT_POLICY = "predicted-wait"
