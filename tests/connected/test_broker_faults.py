"""The broker hangs, dies and comes back: every call ends in time, subscriptions survive, what was accepted arrives."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from tests.pulsar_server import PulsarServer
from tests.suspended import suspended
from tg_base.bus import Bus, open_bus
from tg_schema.errors import BusError

pytestmark = pytest.mark.connected

LONGEST_CALL = 9.0
LONGEST_LEAVE = 2.0


class Heard:
    """What a reader has got so far."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()
        self.more = asyncio.Event()

    async def until(self, bodies: set[bytes]) -> None:
        """Wait until all of these have come."""
        while not bodies <= self.bodies:
            self.more.clear()
            await self.more.wait()


@asynccontextmanager
async def reading(bus: Bus, topic: str, group: str | None, prefetch: int) -> AsyncIterator[Heard]:
    """Read in the background."""
    heard = Heard()

    async def read() -> None:
        async for delivery in deliveries:
            delivery.ack()
            heard.bodies.add(delivery.body)
            heard.more.set()

    async with bus.subscribe(topic, group, prefetch=prefetch) as deliveries:
        task = asyncio.create_task(read())
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.wait([task])


async def fails_in_time(call: Awaitable[None]) -> None:
    """The call raises BusError, within its deadline."""
    start = time.monotonic()
    with pytest.raises(BusError):
        await call
    assert time.monotonic() - start < LONGEST_CALL


async def visit(bus: Bus, topic: str) -> None:
    """Subscribe and leave."""
    async with bus.subscribe(topic, "visitor"):
        pass


async def all_fail_in_time(bus: Bus, known: list[str]) -> None:
    """Nothing that needs the broker hangs."""
    async with asyncio.TaskGroup() as calls:
        for topic in [*known, f"persistent://tg/flow/{uuid4().hex}"]:
            calls.create_task(fails_in_time(bus.publish(topic, b"during", {})))
        calls.create_task(fails_in_time(visit(bus, known[0])))
        calls.create_task(fails_in_time(bus.ping()))


def topics() -> tuple[str, str]:
    """A persistent topic and one that is not."""
    return f"persistent://tg/request/{uuid4().hex}", f"non-persistent://tg/response/{uuid4().hex}"


async def test_while_the_broker_hangs_calls_fail_in_time_and_readers_stay(pulsar: PulsarServer) -> None:
    kept, passing = topics()
    async with (
        open_bus(pulsar.service_url) as bus,
        reading(bus, kept, "g", 0) as worker,
        reading(bus, passing, None, 100) as reader,
    ):
        for topic in (kept, passing):
            await bus.publish(topic, b"before", {})
        async with asyncio.timeout(20):
            await worker.until({b"before"})
            await reader.until({b"before"})
        with suspended(pulsar.pid):
            await all_fail_in_time(bus, [kept, passing])
        for topic in (kept, passing):
            await bus.publish(topic, b"after", {})
        async with asyncio.timeout(20):
            await worker.until({b"after"})
            await reader.until({b"after"})


async def test_leaving_and_closing_are_quick_while_the_broker_hangs(pulsar: PulsarServer) -> None:
    kept, _ = topics()
    async with open_bus(pulsar.service_url) as bus:
        subscription = bus.subscribe(kept, "g", prefetch=0)
        await subscription.__aenter__()
        with suspended(pulsar.pid):
            start = time.monotonic()
            await subscription.__aexit__(None, None, None)
            assert time.monotonic() - start < LONGEST_LEAVE
            start = time.monotonic()
            await bus.aclose()
            assert time.monotonic() - start < LONGEST_CALL


@pytest.mark.timeout(300)
async def test_a_broker_that_is_killed_and_comes_back_finds_everybody_there(mortal_pulsar: PulsarServer) -> None:
    server = mortal_pulsar
    kept, passing = topics()
    lasting = f"persistent://tg/response/{uuid4().hex}"
    accepted: set[bytes] = set()

    async def publish_on(bus: Bus) -> None:
        for number in range(10_000_000):
            await bus.publish(kept, b"%d" % number, {})
            accepted.add(b"%d" % number)

    async with (
        open_bus(server.service_url) as bus,
        reading(bus, kept, "g", 0) as idle_worker,
        reading(bus, kept, "h", 100) as eager_worker,
        reading(bus, passing, None, 100) as reader,
        reading(bus, lasting, None, 100) as lasting_reader,
    ):
        for topic in (kept, passing, lasting):
            await bus.publish(topic, b"before", {})
        publishing = asyncio.create_task(publish_on(bus))
        await asyncio.wait_for(eager_worker.until({b"100"}), 30)
        await asyncio.to_thread(server.kill)
        await all_fail_in_time(bus, [kept, passing])
        with pytest.raises(BusError):
            await publishing
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(published(bus, [kept, passing, lasting], b"after"), 60)
        async with asyncio.timeout(60):
            await idle_worker.until(accepted | {b"after"})
            await eager_worker.until(accepted | {b"after"})
            await lasting_reader.until({b"before", b"after"})
            await reader.until({b"after"})


async def published(bus: Bus, names: list[str], body: bytes) -> None:
    """Publish until the bus has taken it."""
    for topic in names:
        while True:
            try:
                await bus.publish(topic, body, {})
            except BusError:
                continue
            break
