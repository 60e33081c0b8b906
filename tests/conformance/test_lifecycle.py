"""Subscriptions and buses come and go, in any order and in the middle of everything, and nothing is lost or hangs."""

import asyncio
import contextlib
from uuid import uuid4

import pytest

from tests.conformance.reading import DEADLINE, numbered, take
from tg_base.bus import Bus, open_bus
from tg_schema.errors import BadRequest, BusError


@pytest.mark.parametrize("prefetch", [0, 1000])
async def test_a_wait_that_is_cancelled_loses_no_message(bus: Bus, kept: str, prefetch: int) -> None:
    got: list[bytes] = []
    async with bus.subscribe(kept, "g", prefetch=prefetch) as deliveries:
        for number in range(200):
            waiting = asyncio.ensure_future(anext(deliveries))
            await asyncio.sleep(0)
            publishing = asyncio.create_task(bus.publish(kept, b"%d" % number, {}))
            if number % 3 == 0:
                await publishing
            if number % 5 == 0:
                await asyncio.sleep(0.002)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                delivery = await waiting
                delivery.ack()
                got.append(delivery.body)
            await publishing
        got += await take(deliveries, 200 - len(got))
    assert got == numbered(200)


async def test_leaving_ends_a_wait(bus: Bus, topic: str) -> None:
    async with bus.subscribe(topic, "g", prefetch=0) as deliveries:
        waiting = asyncio.ensure_future(anext(deliveries, None))
        await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        assert await waiting is None


@pytest.mark.parametrize("prefetch", [0, 1000])
async def test_closing_the_bus_ends_every_wait_and_refuses_everything(bus_url: str, topic: str, prefetch: int) -> None:
    async with open_bus(bus_url) as bus, bus.subscribe(topic, None, prefetch=prefetch) as deliveries:
        waiting = [asyncio.ensure_future(anext(deliveries, None)) for _ in range(3)]
        await bus.publish(topic, b"x", {})
        await bus.aclose()
        async with asyncio.timeout(DEADLINE):
            assert [None if each is None else each.body for each in await asyncio.gather(*waiting)].count(None) >= 2
        with pytest.raises(BusError):
            await bus.publish(topic, b"late", {})
        with pytest.raises(BusError):
            async with bus.subscribe(topic, None):
                pass
        with pytest.raises(BusError):
            await bus.ping()
        await bus.aclose()


async def test_subscriptions_open_and_close_side_by_side(bus: Bus) -> None:
    async def visit(number: int) -> None:
        topic = f"persistent://tg/flow/{uuid4().hex}"
        async with bus.subscribe(topic, "g", prefetch=number % 3) as deliveries:
            await bus.publish(topic, b"%d" % number, {})
            assert await take(deliveries, 1) == [b"%d" % number]

    async with asyncio.TaskGroup() as tasks:
        for number in range(30):
            tasks.create_task(visit(number))


async def test_subscribing_may_be_cancelled_at_any_point(bus: Bus, kept: str) -> None:
    async def stay() -> None:
        async with bus.subscribe(kept, "g") as deliveries:
            await anext(deliveries)

    for pause in range(10):
        task = asyncio.create_task(stay())
        await asyncio.sleep(pause / 1000)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await bus.publish(kept, b"x", {})
    async with bus.subscribe(kept, "g") as deliveries:
        assert await take(deliveries, 1) == [b"x"]


async def test_publishes_that_are_cancelled_disturb_nothing(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g") as deliveries:
        publishes = [asyncio.create_task(bus.publish(kept, b"maybe", {})) for _ in range(100)]
        await asyncio.sleep(0)
        for publish in publishes:
            publish.cancel()
        await asyncio.wait(publishes)
        await bus.publish(kept, b"surely", {})
        async with asyncio.timeout(DEADLINE):
            while (await anext(deliveries)).body != b"surely":
                pass


async def test_an_open_bus_answers_a_ping(bus: Bus) -> None:
    async with asyncio.timeout(DEADLINE):
        await bus.ping()


@pytest.mark.parametrize(
    "url", ["", "memory", "memory://name", "kafka://host", "pulsar://", "pulsar://host:port", "pulsar:/x"]
)
async def test_a_url_that_names_no_bus_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        async with open_bus(url):
            pass
