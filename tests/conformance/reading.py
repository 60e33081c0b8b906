"""How the conformance tests read: always within a deadline."""

import asyncio
from collections.abc import AsyncIterator

from tg_base.bus import Bus, Delivery

DEADLINE = 20.0


async def take(deliveries: AsyncIterator[Delivery], count: int) -> list[bytes]:
    """The bodies of the next messages, acknowledged."""
    bodies: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(bodies) < count:
            delivery = await anext(deliveries)
            delivery.ack()
            bodies.append(delivery.body)
    return bodies


async def take_one(deliveries: AsyncIterator[Delivery]) -> Delivery:
    """The next message, not acknowledged."""
    async with asyncio.timeout(DEADLINE):
        return await anext(deliveries)


async def publish_all(bus: Bus, topic: str, bodies: list[bytes]) -> None:
    """Publish one after the other."""
    for body in bodies:
        await bus.publish(topic, body, {})


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Bodies that tell themselves apart."""
    return [f"{prefix}{number}".encode() for number in range(count)]
