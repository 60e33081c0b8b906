"""A bus that passes everything to another one: what the unkind ones are made from, each with what it does otherwise."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from typing_extensions import override

from tg_base.bus import Bus, Delivery, Entry, LogWriter


class PassingBus(Bus):
    """Belongs to a test, which also opened, and closes, the bus behind it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    @property
    @override
    def max_message(self) -> int:
        return self._bus.max_message

    @property
    @override
    def in_process(self) -> bool:
        return self._bus.in_process

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await self._bus.publish(topic, body, properties)

    @override
    def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        return self._bus.subscribe(topic, group, prefetch=prefetch)

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        return await self._bus.append(topic, body, properties)

    @override
    def open_log(self, topic: str) -> AbstractAsyncContextManager[LogWriter]:
        return self._bus.open_log(topic)

    @override
    def follow(self, topic: str, after: str) -> AbstractAsyncContextManager[AsyncIterator[Entry]]:
        return self._bus.follow(topic, after)

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        return await self._bus.read(topic)

    @override
    async def erase(self, topic: str) -> None:
        await self._bus.erase(topic)

    @override
    async def ping(self, topic: str | None = None, *, produce: bool = False) -> None:
        await self._bus.ping(topic, produce=produce)

    @override
    async def aclose(self) -> None:
        """Nothing: the bus behind it is another's."""


class RemoteBus(PassingBus):
    """Seems to belong to another process; a subclass decides how what is delivered reaches it."""

    @property
    @override
    def in_process(self) -> bool:
        return False

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        async with self._bus.subscribe(topic, group, prefetch=prefetch) as deliveries:
            yield self._deliver(topic, deliveries)

    def _deliver(self, topic: str, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        """What a subscription to this topic yields."""
        return deliveries
