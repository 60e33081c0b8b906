"""A bus as a process sees it that is killed: from then on nothing of it is heard, and it hears nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from typing_extensions import override

from tests.fakes.passing_bus import RemoteBus
from tg_base.bus import Bus, Delivery


class MortalBus(RemoteBus):
    """Passes everything to a real bus until `kill` is called. It is closed by whoever opened the real one.

    Attributes:
        asked: requests that this process has made.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._dead = False
        self.asked = 0

    def kill(self) -> None:
        """As by kill -9."""
        self._dead = True

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self.asked += "-request-" in topic
        if not self._dead:
            await self._bus.publish(topic, body, properties)

    @override
    async def _deliver(self, topic: str, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            if self._dead:
                await asyncio.Event().wait()
            yield delivery
