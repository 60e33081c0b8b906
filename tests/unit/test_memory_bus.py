"""What the memory bus does beyond the conformance suite: it bounds what it holds, and makes publishers wait."""

import asyncio

import pytest

from tg_base.bus import memory
from tg_base.bus.memory import MemoryBus
from tg_schema.errors import BusError

KEPT = "persistent://tg/request/work"
PASSING = "non-persistent://tg/response/inbox"


async def fill(bus: MemoryBus, topic: str, count: int) -> None:
    for number in range(count):
        await bus.publish(topic, b"%d" % number, {})


async def test_a_publish_waits_while_a_lone_reader_is_full() -> None:
    bus = MemoryBus()
    async with bus.subscribe(PASSING, None, prefetch=3) as deliveries:
        await fill(bus, PASSING, 3)
        waiting = asyncio.create_task(bus.publish(PASSING, b"3", {}))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (await anext(deliveries)).body == b"0"
        await waiting
        assert [(await anext(deliveries)).body for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_publish_waits_while_a_group_holds_too_much_and_goes_on_with_an_acknowledgement() -> None:
    bus = MemoryBus(max_waiting=3)
    async with bus.subscribe(KEPT, "g") as deliveries:
        await fill(bus, KEPT, 3)
        delivery = await anext(deliveries)
        waiting = asyncio.create_task(bus.publish(KEPT, b"3", {}))
        await asyncio.sleep(0)
        assert not waiting.done()
        delivery.ack()
        await waiting


async def test_a_publish_that_finds_no_room_in_time_fails_and_leaves_nothing() -> None:
    bus = MemoryBus(max_waiting=1, publish_timeout=0.01)
    async with bus.subscribe(KEPT, "g") as deliveries:
        await bus.publish(KEPT, b"0", {})
        with pytest.raises(BusError):
            await bus.publish(KEPT, b"1", {})
        (await anext(deliveries)).ack()
        await bus.publish(KEPT, b"2", {})
        assert (await anext(deliveries)).body == b"2"


async def test_waiting_publishers_keep_their_line() -> None:
    bus = MemoryBus()
    async with bus.subscribe(PASSING, None, prefetch=1) as deliveries:
        await bus.publish(PASSING, b"0", {})
        waiting = [asyncio.create_task(bus.publish(PASSING, b"%d" % number, {})) for number in range(1, 5)]
        assert [(await anext(deliveries)).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        await asyncio.gather(*waiting)


async def test_a_waiting_publisher_that_is_cancelled_lets_the_next_one_in() -> None:
    bus = MemoryBus()
    async with bus.subscribe(PASSING, None, prefetch=1) as deliveries:
        await bus.publish(PASSING, b"0", {})
        leaver, stayer = (asyncio.create_task(bus.publish(PASSING, body, {})) for body in (b"leaver", b"stayer"))
        await asyncio.sleep(0)
        leaver.cancel()
        assert [(await anext(deliveries)).body for _ in range(2)] == [b"0", b"stayer"]
        await stayer


async def test_closing_the_bus_fails_a_waiting_publish() -> None:
    bus = MemoryBus()
    async with bus.subscribe(PASSING, None, prefetch=1):
        await bus.publish(PASSING, b"0", {})
        waiting = asyncio.create_task(bus.publish(PASSING, b"1", {}))
        await asyncio.sleep(0)
        await bus.aclose()
        with pytest.raises(BusError):
            await waiting


async def test_a_reader_that_leaves_no_longer_holds_publishers_up() -> None:
    bus = MemoryBus()
    async with bus.subscribe(PASSING, None, prefetch=100) as other:
        async with bus.subscribe(PASSING, None, prefetch=1):
            await bus.publish(PASSING, b"0", {})
            waiting = asyncio.create_task(bus.publish(PASSING, b"1", {}))
            await asyncio.sleep(0)
        await waiting
        assert [(await anext(other)).body for _ in range(2)] == [b"0", b"1"]


async def test_bytes_count_as_well_as_messages() -> None:
    bus = MemoryBus()
    half = bytes(memory.MAX_WAITING_BYTES // 16 // 2)
    async with bus.subscribe(PASSING, None, prefetch=1000) as deliveries:
        for _ in range(32):
            await bus.publish(PASSING, half, {})
        waiting = asyncio.create_task(bus.publish(PASSING, b"more", {}))
        await asyncio.sleep(0)
        assert not waiting.done()
        await anext(deliveries)
        await waiting


async def test_a_topic_without_a_group_keeps_the_latest_messages_only() -> None:
    bus = MemoryBus()
    await fill(bus, KEPT, memory.MAX_UNCLAIMED_MESSAGES + 10)
    async with bus.subscribe(KEPT, "g") as deliveries:
        assert (await anext(deliveries)).body == b"10"


async def test_what_nobody_reads_is_forgotten() -> None:
    bus = MemoryBus()
    for number in range(10):
        topic = f"{PASSING}-{number}"
        await bus.publish(topic, b"x", {})
        async with bus.subscribe(topic, None), bus.subscribe(topic, "g"):
            await bus.publish(topic, b"x", {})
    assert not bus._topics
