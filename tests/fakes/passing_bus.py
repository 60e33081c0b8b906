"""A bus that passes everything to another one: what the unkind ones are made from, each with what it does otherwise."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from typing_extensions import override

from tg_base.bus import Bus, Delivery


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
    async def ping(self) -> None:
        await self._bus.ping()

    @override
    async def aclose(self) -> None:
        """Nothing: the bus behind it is another's."""
