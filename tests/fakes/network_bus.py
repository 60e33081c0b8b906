"""A bus as a process far from its broker sees it: slow, held up in one direction or both, with a clock of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from typing_extensions import override

from tests.fakes.passing_bus import RemoteBus
from tg_base.bus import Bus, Delivery
from tg_schema.errors import TooLarge


class _Delivery(Delivery):
    """A message that came through this network."""

    def __init__(self, delivery: Delivery, bus: "NetworkBus") -> None:
        self._delivery = delivery
        self._bus = bus

    @property
    @override
    def body(self) -> bytes:
        return self._delivery.body

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return self._delivery.properties

    @property
    @override
    def age(self) -> float:
        return self._delivery.age + self._bus.clock_ahead

    @property
    @override
    def redelivered(self) -> bool:
        return self._delivery.redelivered

    @override
    def ack(self) -> None:
        self._delivery.ack()

    @override
    def nack(self, after: float = 0.0) -> None:
        self._delivery.nack(after)


class NetworkBus(RemoteBus):
    """Passes everything to a real bus, which is closed by whom it belongs to.

    Attributes:
        delay: seconds that a message takes on each of its ways.
        clock_ahead: seconds that this process's clock is ahead of the others'.
        limit: bytes of a message that the broker takes, whatever `max_message` says.
        sent: an open gate for what this process publishes; closed, everything waits there.
        received: the same for what it gets.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.delay = 0.0
        self.clock_ahead = 0.0
        self.limit = bus.max_message
        self.sent = asyncio.Event()
        self.received = asyncio.Event()
        self.sent.set()
        self.received.set()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if len(body) > self.limit:
            raise TooLarge("the broker takes no message of this size")
        if self.delay:
            await asyncio.sleep(self.delay)
        await self.sent.wait()
        await self._bus.publish(topic, body, properties)

    @override
    async def _deliver(self, topic: str, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            if self.delay:
                await asyncio.sleep(self.delay)
            await self.received.wait()
            yield _Delivery(delivery, self)
