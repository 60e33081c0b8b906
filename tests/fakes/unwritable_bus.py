"""A bus that does not take some entries of logs: as a broker that is full, or as one that a suspended process uses."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus, LogWriter
from tg_schema.errors import BusError, TooLarge

FULL = "the broker is full"


class UnwritableBus(PassingBus):
    """Passes everything else to a real bus.

    Attributes:
        refused: kinds of entries that are refused.
        dropped: kinds of entries that are lost.
        asked: set when an entry was refused.
        names: of the logs that were opened.
        limit: bytes of an entry, in logs that are opened.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.refused: set[str] = set()
        self.dropped: set[str] = set()
        self.asked = asyncio.Event()
        self.names: list[str] = []
        self.limit = bus.max_message

    async def take_again(self) -> None:
        """Refuse one entry, and then none."""
        await self.asked.wait()
        self.refused = set()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if properties.get("kind") in self.refused:
            raise BusError(FULL)
        return await super().append(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        self.names.append(topic.rpartition("tg-kept-")[2])
        async with self._bus.open_log(topic) as log:

            async def append(_: str, body: bytes, properties: Mapping[str, str]) -> None:
                if len(body) > self.limit:
                    raise TooLarge("the broker takes no message of this size")
                if properties.get("kind") in self.refused:
                    self.asked.set()
                    raise BusError(FULL)
                if properties.get("kind") not in self.dropped:
                    await log.append(body, properties)

            yield LogWriter(topic, append)
