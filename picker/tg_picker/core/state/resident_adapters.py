"""Placements and reports -> policies: which adapters one server probably has loaded, used or idle."""

from collections.abc import Container

from tg_picker.core.interface import AdapterReport

DEFAULT_MAX_ADAPTERS = 1_024
"""Adapters remembered for a server that does not report its slots."""
MAX_ADAPTERS = 1_024
"""Most adapters remembered for a server, whatever slots it reports, because names come from clients."""
LOADING_SECONDS = 2.0
"""A placement this recent outweighs a report without its adapter, because the adapter may be loading."""


class ResidentAdapters:
    """Adapters ordered by last use, like a server's own slots: the least recently used idle one is unloaded first.

    Servers that report only activity (vLLM) do not report idle adapters. But our own placements show them: the adapters
    that were placed last are the loaded ones.

    Attributes:
        used_at: when each adapter was last placed here or reported, the oldest first.
        slots: adapters that fit; None = not reported.
        told: the last MAX_ADAPTERS reported ones. An idle one that vLLM no longer reports stays until a 404 for it.
    """

    def __init__(self) -> None:
        self.used_at: dict[str, float] = {}
        self.slots: int | None = None
        self.told: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.used_at)

    def use(self, adapter: str, now: float, busy: Container[str]) -> None:
        """Note a placement. `busy` are the adapters that have requests here, including this one."""
        self.used_at.pop(adapter, None)
        self.used_at[adapter] = now
        self._make_room(busy)

    def observe(self, report: AdapterReport, read_at: float, busy: Container[str]) -> None:
        """Correct the assumptions by what the server reports."""
        self.slots = report.slots if report.slots is not None else self.slots
        known, reported = self.used_at, report.resident
        told = {*report.active, *(reported or ())}
        # Move repeated names to the end, so that they outlive names that were reported only once.
        self.told = dict.fromkeys([*(each for each in self.told if each not in told), *told][-MAX_ADAPTERS:])
        if reported is not None:
            gone = [
                adapter
                for adapter, used_at in known.items()
                if adapter not in reported and adapter not in busy and used_at < read_at - LOADING_SECONDS
            ]
            for adapter in gone:
                del known[adapter]
        # Note adapters that other clients use. Sort them, since a set's order differs from process to process.
        for adapter in sorted(set(report.active if reported is None else reported) - known.keys()):
            known[adapter] = read_at
        self._make_room(busy)

    def discard(self, adapter: str) -> None:
        """Note that the server lacks an adapter, because it answered 404."""
        self.used_at.pop(adapter, None)
        self.told.pop(adapter, None)

    def clear(self) -> None:
        """Forget everything, because the server left or restarted."""
        self.used_at.clear()

    def _make_room(self, busy: Container[str]) -> None:
        most = DEFAULT_MAX_ADAPTERS if self.slots is None else min(max(self.slots, 1), MAX_ADAPTERS)
        excess = len(self.used_at) - most
        if excess > 0:
            idle = [adapter for adapter in self.used_at if adapter not in busy][:excess]
            for adapter in idle:
                del self.used_at[adapter]
