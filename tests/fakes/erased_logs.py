"""A process's bus on whose logs something arrives when they have just been erased: nothing of it may stay."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus, LogWriter
from tg_gateway.jobs.log import PART

ANY: Final = "any"
"""Whatever comes next."""


class ErasedLogs(PassingBus):
    """Somebody erases a log just before the next entry of a kind arrives there.

    A part of an answer was on its way when its log was erased first.

    Attributes:
        kind: of the entry that comes too late; "" = it has come.
        swept: set when a log was erased after that.
    """

    def __init__(self, bus: Bus, kind: str = "") -> None:
        super().__init__(bus)
        self.kind = kind
        self.swept = asyncio.Event()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if self.kind == ANY or self.kind == properties["kind"] != PART:
            self.kind = ""
            await self._bus.erase(topic)
        return await super().append(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self.append)

    @override
    async def erase(self, topic: str) -> None:
        await super().erase(topic)
        if self.kind == PART:
            self.kind = ""
            await super().append(topic, b"late", {"kind": PART, "number": "9"})
        elif not self.kind:
            self.swept.set()
