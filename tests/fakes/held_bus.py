"""A bus whose logs take nothing until they may: as a broker that is slow."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus
from tg_schema.errors import BusError


class HeldBus(PassingBus):
    """Passes everything to a real bus.

    Attributes:
        open: set when logs may be appended to.
        failing: so many appends fail then.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.open = asyncio.Event()
        self.failing = 0

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        await self.open.wait()
        if self.failing:
            self.failing -= 1
            raise BusError("the broker did not take it")
        return await super().append(topic, body, properties)
