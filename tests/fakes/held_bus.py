"""A bus whose logs, and some topics, take nothing until they may: as a broker that is slow."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus
from tg_schema.errors import BusError


class HeldBus(PassingBus):
    """Passes everything to a real bus.

    Attributes:
        open: set when logs may be appended to, and messages of held topics published.
        failing: so many appends fail then.
        losing: so many appends arrive then, and seem to fail.
        appending: how many appends have begun.
        held: topics whose messages wait for that.
        waiting: set when one does.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.open = asyncio.Event()
        self.failing = self.losing = self.appending = 0
        self.held: set[str] = set()
        self.waiting = asyncio.Event()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if topic in self.held:
            self.waiting.set()
            await self.open.wait()
        await super().publish(topic, body, properties)

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        self.appending += 1
        await self.open.wait()
        if self.failing:
            self.failing -= 1
            raise BusError("the broker did not take it")
        position = await super().append(topic, body, properties)
        if self.losing:
            self.losing -= 1
            raise BusError("the broker's answer was lost")
        return position
