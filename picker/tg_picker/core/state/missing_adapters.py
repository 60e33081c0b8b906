"""Answers with status 404 -> flow control: which servers are skipped for an adapter, because they lack it."""

from collections.abc import Callable, Iterable, Sequence

from typing_extensions import override

from tg_picker.core.interface import Endpoint, InstanceUsage
from tg_picker.core.state.placement import Follower, LatencySample, Placement

MISSING_SECONDS = 60.0
"""How long a server is skipped. Somebody may load the adapter there later, and not every server reports that."""
MAX_ADAPTERS = 1_024
"""Most adapters that are remembered; if there are no routes, clients choose their names."""


class MissingAdapters(Follower):
    """The adapters that servers lack, by their own answers.

    Without this, a policy would pick such a server again and again, because it is always idle.

    Attributes:
        on_lost: called with an address and an adapter that the server there lacks; the adapter is None if the server
            may have lost all adapters.
    """

    def __init__(self) -> None:
        self.on_lost: Callable[[str, str | None], None] = lambda _address, _adapter: None
        self._missing: dict[str, dict[str, float]] = {}

    def note(self, address: str, adapter: str, now: float) -> None:
        """Note that a server answered 404 for an adapter."""
        if adapter not in self._missing and len(self._missing) >= MAX_ADAPTERS:
            del self._missing[next(iter(self._missing))]
        self._missing.setdefault(adapter, {})[address] = now
        self.on_lost(address, adapter)

    def find(self, address: str, adapters: Iterable[str], at: float) -> None:
        """Note that a server had these adapters at this time: it answered for them, or reported them."""
        if not self._missing:
            return
        for adapter in adapters:
            # A report from before the 404 does not contradict it.
            if (servers := self._missing.get(adapter)) and servers.get(address, at) < at:
                del servers[address]

    @override
    def began(self, placement: Placement, sample: LatencySample | None, now: float) -> None:
        """An answer for an adapter shows that the server has it."""
        if placement.adapter is not None:
            self.find(placement.address, (placement.adapter,), now)

    @override
    def finished(
        self, placement: Placement, sample: LatencySample | None, usage: InstanceUsage | None, now: float
    ) -> None:
        """As `began`, but only if the answer was measured."""
        if sample is not None:
            self.began(placement, sample, now)

    def forget(self, address: str) -> None:
        """Forget a server, because it left or restarted."""
        for servers in self._missing.values():
            servers.pop(address, None)
        self.on_lost(address, None)

    def expire(self, now: float) -> None:
        """Forget 404 answers older than MISSING_SECONDS."""
        for adapter, servers in tuple(self._missing.items()):
            for address in [each for each, at in servers.items() if now - at > MISSING_SECONDS]:
                del servers[address]
            if not servers:
                del self._missing[adapter]

    def without(self, endpoints: Sequence[Endpoint], adapter: str) -> Sequence[Endpoint]:
        """The servers that may have an adapter.

        If none may have it, all are returned, so that a server's own error reaches the client.
        """
        servers = self._missing.get(adapter)
        if not servers:
            return endpoints
        return [each for each in endpoints if each.address not in servers] or endpoints
