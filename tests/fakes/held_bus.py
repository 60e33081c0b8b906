"""A bus whose logs take nothing until they may: as a broker that is slow."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus


class HeldBus(PassingBus):
    """Passes everything to a real bus.

    Attributes:
        open: set when logs may be appended to.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.open = asyncio.Event()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        await self.open.wait()
        return await super().append(topic, body, properties)
