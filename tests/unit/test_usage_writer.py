"""Records of usage on their way to the bus: none is lost while it is away, up to a bound, and nothing waits for it."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.fakes.network_bus import NetworkBus
from tests.fakes.refusing_bus import RefusingBus
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.protocol.usage_writer import GATHER_SECONDS, MAX_MESSAGE_BYTES, UsageWriter
from tg_base.runtime import running
from tg_schema import decode
from tg_schema.topics import Topics
from tg_schema.usage_record import UsageRecord

TOPIC = Topics().usage


def put(writer: UsageWriter, count: int) -> None:
    for number in range(count):
        writer.put(UsageRecord(f"s-{number}", 1))


def lost() -> float:
    return REGISTRY.get_sample_value("tg_usage_lost_total") or 0.0


async def read(bus: Bus, count: int) -> set[str]:
    found: list[str] = []
    async with bus.subscribe(TOPIC, "usage") as deliveries:
        while len(found) < count:
            lines = (await anext(deliveries)).body.split(b"\n")
            found += [decode(UsageRecord, line).stream for line in lines]
    assert len(found) == count
    return {*found}


@in_virtual_time
async def test_what_the_bus_refuses_is_published_again() -> None:
    memory, before = MemoryBus(), lost()
    bus = RefusingBus(memory, TOPIC)
    writer = UsageWriter(bus, TOPIC)
    async with running(writer.run()):
        put(writer, 600)
        await asyncio.sleep(60)
        bus.refused.clear()
        assert await read(memory, 600) == {f"s-{number}" for number in range(600)}
        await writer.flush(1)
    assert lost() == before
    await memory.aclose()


@in_virtual_time
async def test_the_records_of_a_moment_are_one_message_up_to_its_size() -> None:
    memory, clock = MemoryBus(), asyncio.get_running_loop().time
    writer = UsageWriter(memory, TOPIC)
    async with running(writer.run()), memory.subscribe(TOPIC, "usage") as deliveries:
        put(writer, 100)
        lines = (await anext(deliveries)).body.split(b"\n")
        assert clock() == pytest.approx(GATHER_SECONDS)
        assert [decode(UsageRecord, line).stream for line in lines] == [f"s-{number}" for number in range(100)]
        put(writer, 4000)
        bodies = [(await anext(deliveries)).body for _ in range(2)]
        assert clock() == pytest.approx(2 * GATHER_SECONDS)
        assert all(MAX_MESSAGE_BYTES / 2 < len(body) <= MAX_MESSAGE_BYTES for body in bodies)
        # A name of a megabyte goes alone.
        writer.put(UsageRecord("large", 1, model="m" * 1_000_000))
        put(writer, 1)
        found = [(await anext(deliveries)).body for _ in range(2)]
        assert [decode(UsageRecord, body).stream for body in found] == ["large", "s-0"]
    await memory.aclose()


@in_virtual_time
async def test_a_record_that_is_too_large_for_the_bus_holds_up_no_other() -> None:
    memory, before = MemoryBus(), lost()
    writer = UsageWriter(memory, TOPIC)
    writer.put(UsageRecord("large", 1, model="m" * memory.max_message))
    put(writer, 3)
    async with running(writer.run()):
        assert await read(memory, 3) == {"s-0", "s-1", "s-2"}
    assert lost() == before + 1
    await memory.aclose()


@in_virtual_time
async def test_a_broker_that_takes_less_than_is_known_gets_smaller_messages() -> None:
    memory, before = MemoryBus(), lost()
    narrow = NetworkBus(memory)
    narrow.limit = 1000
    writer = UsageWriter(narrow, TOPIC)
    async with running(writer.run()):
        put(writer, 300)
        assert await read(memory, 300) == {f"s-{number}" for number in range(300)}
    assert lost() == before
    await memory.aclose()


@in_virtual_time
async def test_the_end_of_a_process_does_not_wait_for_the_pause_after_a_refusal() -> None:
    memory, before = MemoryBus(), lost()
    bus = RefusingBus(memory, TOPIC)
    writer = UsageWriter(bus, TOPIC)
    with capture_logs() as lines:
        async with running(writer.run()):
            put(writer, 10)
            await asyncio.sleep(4)
            bus.refused.clear()
            await writer.flush(0.1)
            assert await read(memory, 10) == {f"s-{number}" for number in range(10)}
    assert lost() == before
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["usage.not_published"]
    await memory.aclose()


@in_virtual_time
async def test_beyond_the_bound_records_are_dropped_and_counted_and_logged_once() -> None:
    memory, before = MemoryBus(), lost()
    writer = UsageWriter(RefusingBus(memory, TOPIC), TOPIC, most=10)
    with capture_logs() as lines:
        put(writer, 25)
        await until(lambda: lost() == before + 15)
    assert [line["event"] for line in lines] == ["usage.lost"]
    await memory.aclose()


@in_virtual_time
async def test_the_end_of_a_process_waits_no_longer_than_it_may() -> None:
    memory, before = MemoryBus(), lost()
    bus = RefusingBus(memory, TOPIC)
    writer, clock = UsageWriter(bus, TOPIC), asyncio.get_running_loop().time
    async with running(writer.run()):
        await writer.flush(1)
        assert clock() == 0
        put(writer, 3)
        await writer.flush(1)
        assert clock() == 1
    assert lost() == before + 3
    await memory.aclose()


@in_virtual_time
async def test_what_comes_too_late_at_the_end_of_a_process_is_counted_as_lost() -> None:
    memory, before = MemoryBus(), lost()
    writer = UsageWriter(memory, TOPIC)
    async with running(writer.run()):
        put(writer, 3)
        await writer.flush(1)
        put(writer, 2)
    put(writer, 1)
    assert lost() == before + 3
    assert await read(memory, 3) == {f"s-{number}" for number in range(3)}
    await memory.aclose()
