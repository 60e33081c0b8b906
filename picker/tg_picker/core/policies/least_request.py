"""Situation -> server: the fewest requests in flight by our own count; ties by chance."""

from operator import attrgetter

from tg_picker.core.policies.policy import Choice, Situation

requests_of = attrgetter("requests")


class LeastRequest:
    """The server with the fewest requests in flight."""

    def choose(self, situation: Situation) -> Choice:
        """Choose by our own count, so that it works without a single metric."""
        servers = situation.servers
        fewest = min(map(requests_of, servers))
        ties = [server for server in servers if server.requests == fewest]
        return Choice(situation.random.choice(ties), (f"requests {fewest}",))
