"""A bus that remembers every message that anybody publishes: what an eavesdropper on the broker would have."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from typing_extensions import override

from tg_base.bus.api import Bus, Delivery


class RecordingBus(Bus):
    """Passes everything to a real bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.published: list[tuple[str, bytes, dict[str, str]]] = []

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self.published.append((topic, body, dict(properties)))
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
        await self._bus.aclose()
