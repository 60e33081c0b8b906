"""A bus that remembers every message that anybody publishes: what an eavesdropper on the broker would have."""

from collections.abc import Mapping

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tg_base.bus import Bus


class RecordingBus(PassingBus):
    """Passes everything to a real bus."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.published: list[tuple[str, bytes, dict[str, str]]] = []

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self.published.append((topic, body, dict(properties)))
        await self._bus.publish(topic, body, properties)

    @override
    async def aclose(self) -> None:
        await self._bus.aclose()
