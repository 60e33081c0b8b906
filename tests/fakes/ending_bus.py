"""A bus whose subscriptions end by themselves, as when a broker closes a consumer for good or its client fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus, Delivery
from tg_schema.errors import BusError


class EndingBus(PassingBus):
    """Passes everything to a real bus, which is closed by whoever opened it.

    Attributes:
        refusing: whether it opens no subscription any more.
        away: whether it answers no ping, and opens no subscription.
        opened: the topics of all subscriptions, in the order of their opening.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._ends: dict[str, set[asyncio.Future[Delivery]]] = {}
        self.refusing = False
        self.away = False
        self.opened: list[str] = []

    def end(self, topic: str, error: Exception | None = None) -> None:
        """End all subscriptions of a topic: with this error, or as an iteration ends."""
        for end in self._ends.get(topic, set()):
            if not end.done():
                end.set_exception(_End() if error is None else error)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        if self.refusing or self.away:
            raise BusError("the broker does not let us use this topic; an operator must allow it")
        ends = self._ends.setdefault(topic, set())
        end: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        ends.add(end)
        try:
            async with self._bus.subscribe(topic, group, prefetch=prefetch) as deliveries:
                self.opened.append(topic)
                yield _EndingReader(deliveries, end)
        finally:
            ends.discard(end)
            if end.done():
                end.exception()

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        if self.away:
            raise BusError("the broker can't be reached; try again")
        await self._bus.ping(topic, produce=produce)


class _End(Exception):
    """The iteration is over."""


class _EndingReader(AsyncIterator[Delivery]):
    def __init__(self, deliveries: AsyncIterator[Delivery], end: "asyncio.Future[Delivery]") -> None:
        self._deliveries = deliveries
        self._end = end

    @override
    async def __anext__(self) -> Delivery:
        receiving = asyncio.ensure_future(anext(self._deliveries))
        try:
            await asyncio.wait([receiving, self._end], return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                return receiving.result()
            try:
                return self._end.result()
            except _End:
                raise StopAsyncIteration from None
        finally:
            receiving.cancel()
