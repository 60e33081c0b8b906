"""A process's bus that holds what its log says of an answer: a broker that takes it late, or never."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus, Entry, LogWriter
from tg_gateway.jobs.log import kind_of


class HeldNotes(PassingBus):
    """Takes entries of these kinds once it is told to.

    Args:
        bus: the one behind it.
        kinds: of the entries that it holds.
        confirms: what it holds has arrived, and only its confirmation is late.

    Attributes:
        held: set when there is one.
        go: set it to let all pass.
    """

    def __init__(self, bus: Bus, *kinds: str, confirms: bool = False) -> None:
        super().__init__(bus)
        self._kinds = kinds
        self._confirms = confirms
        self.held, self.go = asyncio.Event(), asyncio.Event()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if kind_of(Entry(body, properties, "")) not in self._kinds:
            return await super().append(topic, body, properties)
        position = await super().append(topic, body, properties) if self._confirms else ""
        self.held.set()
        await self.go.wait()
        return position or await super().append(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self.append)
