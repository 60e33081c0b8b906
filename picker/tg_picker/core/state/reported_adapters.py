"""Reports -> doors: which names are adapters, if no route says so."""

from collections.abc import Iterable

from tg_picker.core.interface import Endpoint

MAX_ADAPTERS = 1_024
"""How many names are remembered; beyond that, the one reported longest ago is forgotten."""


class ReportedAdapters:
    """The adapters that servers reported.

    An idle adapter that vLLM no longer reports stays known until vLLM answers 404.
    """

    def __init__(self) -> None:
        self._tellers: dict[str, set[str]] = {}

    def note(self, address: str, adapters: Iterable[str]) -> None:
        """Note the adapters that a server reports."""
        for adapter in adapters:
            if adapter not in self._tellers and len(self._tellers) >= MAX_ADAPTERS:
                del self._tellers[next(iter(self._tellers))]
            # Move it to the end, so that names that are reported again outlive those that were reported once.
            self._tellers[adapter] = {*self._tellers.pop(adapter, ()), address}

    def forget(self, address: str, adapter: str | None = None) -> None:
        """Note that a server lacks an adapter; None = the server left."""
        for name in (adapter,) if adapter is not None else tuple(self._tellers):
            if tellers := self._tellers.get(name):
                tellers.discard(address)
                if not tellers:
                    del self._tellers[name]

    def has(self, adapter: str, endpoints: Iterable[Endpoint]) -> bool:
        """Whether one of these servers reported an adapter."""
        tellers = self._tellers.get(adapter)
        return tellers is not None and any(each.address in tellers for each in endpoints)
