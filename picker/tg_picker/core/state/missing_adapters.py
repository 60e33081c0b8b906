"""Answers of status 404 -> flow control: which servers are passed over for an adapter, since they do not have it."""

from collections.abc import Callable, Iterable, Sequence

from tg_picker.core.interface import Endpoint

MISSING_SECONDS = 60.0
"""For so long a server is passed over: somebody may load the adapter there later, which not every server tells."""
MAX_ADAPTERS = 1_024
"""Adapters that are remembered; without routes clients name them."""


class MissingAdapters:
    """What servers said that they do not have. A policy alone would pick such a server again and again: it is idle.

    Attributes:
        on_lost: is told an address and an adapter that the server there lacks; None = it may have lost all it had.
    """

    def __init__(self) -> None:
        self.on_lost: Callable[[str, str | None], None] = _nothing
        self._missing: dict[str, dict[str, float]] = {}

    def note(self, address: str, adapter: str, now: float) -> None:
        """A server answered 404 for an adapter."""
        servers = self._missing.get(adapter)
        if servers is None:
            if len(self._missing) >= MAX_ADAPTERS:
                del self._missing[next(iter(self._missing))]
            servers = self._missing[adapter] = {}
        servers[address] = now
        self.on_lost(address, adapter)

    def find(self, address: str, adapters: Iterable[str], at: float) -> None:
        """A server has adapters, as was seen at this time: it answers for them, or tells them."""
        if not self._missing:
            return
        for adapter in adapters:
            # A report from before the 404 does not disprove it.
            if (servers := self._missing.get(adapter)) and servers.get(address, at) < at:
                del servers[address]

    def forget(self, address: str) -> None:
        """A server left, or began anew."""
        for servers in self._missing.values():
            servers.pop(address, None)
        self.on_lost(address, None)

    def expire(self, now: float) -> None:
        """Forget what is older than MISSING_SECONDS."""
        for adapter, servers in tuple(self._missing.items()):
            for address in [each for each, at in servers.items() if now - at > MISSING_SECONDS]:
                del servers[address]
            if not servers:
                del self._missing[adapter]

    def without(self, endpoints: Sequence[Endpoint], adapter: str) -> Sequence[Endpoint]:
        """The servers that may have an adapter; all of them if none may: one has to say what is wrong."""
        servers = self._missing.get(adapter)
        if not servers:
            return endpoints
        return [each for each in endpoints if each.address not in servers] or endpoints


def _nothing(_address: str, _adapter: str | None) -> None:
    """Nobody is told."""
