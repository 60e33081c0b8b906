"""A bus that loses, repeats and reorders what it delivers on chosen topics: what a non-persistent topic may do."""

import random
from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from tests.fakes.passing_bus import RemoteBus
from tg_base.bus import Bus, Delivery


class FaultyBus(RemoteBus):
    """Passes everything to a real bus, and is unkind to deliveries on topics that `victim` picks."""

    def __init__(self, bus: Bus, victim: Callable[[str], bool], *, seed: int, share: float) -> None:
        super().__init__(bus)
        self._victim = victim
        self._random = random.Random(seed)
        self._share = share
        self.faults = 0

    @override
    def _deliver(self, topic: str, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        return self._unkind(deliveries) if self._victim(topic) else deliveries

    async def _unkind(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        held: Delivery | None = None
        async for delivery in deliveries:
            fault = self._random.choice(("lose", "repeat", "hold")) if self._random.random() < self._share else None
            self.faults += fault is not None
            if fault == "hold" and held is None:
                held = delivery
                continue
            if fault != "lose":
                yield delivery
            if fault == "repeat":
                yield delivery
            if held is not None:
                yield held
                held = None

    @override
    async def aclose(self) -> None:
        await self._bus.aclose()
