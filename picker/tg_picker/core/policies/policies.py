"""Configuration -> scheduler: the policies by name."""

from collections.abc import Callable
from operator import attrgetter

from tg_picker.core.policies.policy import Choice, Policy, Situation
from tg_picker.core.policies.predicted_wait import PredictedWait


class RoundRobin:
    """The servers in turn, in the order in which they are handed in."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, situation: Situation) -> Choice:
        """Choose the next one."""
        server = situation.servers[self._turn % len(situation.servers)]
        self._turn += 1
        return Choice(server, ("turn",))


requests_of = attrgetter("requests")


class LeastRequest:
    """The server with the fewest requests in flight."""

    def choose(self, situation: Situation) -> Choice:
        """Choose by our own count, so that it works without a single metric."""
        servers = situation.servers
        fewest = min(map(requests_of, servers))
        ties = [server for server in servers if server.requests == fewest]
        return Choice(situation.random.choice(ties), (f"requests {fewest}",))


POLICIES: dict[str, Callable[[], Policy]] = {
    "round-robin": RoundRobin,
    "least-request": LeastRequest,
    "predicted-wait": PredictedWait,
}
"""What makes a policy, by its name in the configuration."""
DEFAULT_POLICY = "predicted-wait"
