"""A bus that takes no messages of some topics: as a broker that limits the producers of a topic."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus
from tg_schema.errors import BusError

REFUSAL = "an operator must raise maxProducersPerTopic"


class RefusingBus(PassingBus):
    """Passes everything else to a real bus.

    Attributes:
        refused: topics whose messages are refused.
        away: whether it answers no ping.
        pinged: set when it is asked.
        pong: an open gate for its answers to pings.
    """

    def __init__(self, bus: Bus, *refused: str) -> None:
        super().__init__(bus)
        self.refused = set(refused)
        self.away = False
        self.pinged = asyncio.Event()
        self.pong = asyncio.Event()
        self.pong.set()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if topic in self.refused:
            raise BusError(REFUSAL)
        await super().publish(topic, body, properties)

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        self.pinged.set()
        await self.pong.wait()
        if self.away:
            raise BusError("no broker answers")
        if produce and topic in self.refused:
            raise BusError(REFUSAL)
