"""A named group shares its messages between its members, outlives them, and on a persistent topic loses nothing."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.reading import DEADLINE, numbered, publish_all, take, take_one
from tg_base.bus import Bus, Delivery


async def test_members_of_a_group_share_the_work(bus: Bus, topic: str) -> None:
    sent = numbered(200)
    got: dict[str, list[bytes]] = {"one": [], "other": []}
    complete = asyncio.Event()

    async def work(name: str, deliveries: AsyncIterator[Delivery]) -> None:
        async for delivery in deliveries:
            delivery.ack()
            got[name].append(delivery.body)
            if len(got["one"]) + len(got["other"]) == len(sent):
                complete.set()
            await asyncio.sleep(0)

    async with bus.subscribe(topic, "g") as one, bus.subscribe(topic, "g") as other:
        workers = [asyncio.create_task(work("one", one)), asyncio.create_task(work("other", other))]
        await publish_all(bus, topic, sent)
        async with asyncio.timeout(DEADLINE):
            await complete.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    assert sorted(got["one"] + got["other"]) == sorted(sent)
    assert got["one"]
    assert got["other"]


async def test_what_was_published_before_the_group_existed_is_kept(bus: Bus, kept: str) -> None:
    await publish_all(bus, kept, numbered(30))
    async with bus.subscribe(kept, "g", prefetch=0) as deliveries:
        assert await take(deliveries, 30) == numbered(30)


async def test_what_was_published_while_a_group_was_empty_is_kept(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g") as deliveries:
        await bus.publish(kept, b"first", {})
        assert await take(deliveries, 1) == [b"first"]
    await publish_all(bus, kept, numbered(30))
    async with bus.subscribe(kept, "g") as deliveries:
        assert await take(deliveries, 30) == numbered(30)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 1000])
async def test_what_a_member_did_not_acknowledge_goes_to_the_others(bus: Bus, kept: str, prefetch: int) -> None:
    await publish_all(bus, kept, numbered(5))
    async with bus.subscribe(kept, "g", prefetch=prefetch) as leaver:
        (await take_one(leaver)).ack()
        assert (await take_one(leaver)).body == b"1"
    async with bus.subscribe(kept, "g", prefetch=prefetch) as heir:
        assert sorted(await take(heir, 4)) == numbered(5)[1:]


async def test_a_message_is_acknowledged_once_and_for_all(bus: Bus, kept: str) -> None:
    await publish_all(bus, kept, numbered(2))
    async with bus.subscribe(kept, "g", prefetch=0) as deliveries:
        delivery = await take_one(deliveries)
        delivery.ack()
        delivery.ack()
    delivery.ack()
    async with bus.subscribe(kept, "g", prefetch=0) as deliveries:
        assert await take(deliveries, 1) == [b"1"]


async def test_without_prefetch_whoever_is_idle_takes_the_next(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g", prefetch=0) as busy, bus.subscribe(kept, "g", prefetch=0) as idle:
        waiting = asyncio.create_task(take_one(busy))
        await bus.publish(kept, b"long work", {})
        assert (await waiting).body == b"long work"
        await publish_all(bus, kept, numbered(20))
        assert await take(idle, 20) == numbered(20)


async def test_without_prefetch_each_waiting_task_takes_one(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g", prefetch=0) as deliveries:
        waiting = [asyncio.create_task(take_one(deliveries)) for _ in range(10)]
        await publish_all(bus, kept, numbered(10))
        assert sorted([(await task).body for task in waiting]) == numbered(10)


async def test_a_member_that_does_not_read_delays_nothing_and_loses_nothing(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g", prefetch=4) as deliveries:
        await publish_all(bus, kept, numbered(300))
        assert await take(deliveries, 300) == numbered(300)


@pytest.mark.parametrize("prefetch", [0, 1, 1000])
async def test_what_a_member_gives_back_comes_again_soon_and_is_marked(bus: Bus, kept: str, prefetch: int) -> None:
    async with bus.subscribe(kept, "g", prefetch=prefetch) as deliveries:
        await bus.publish(kept, b"0", {})
        for handed_out in range(3):
            delivery = await take_one(deliveries)
            assert (delivery.body, delivery.redelivered) == (b"0", handed_out > 0)
            delivery.nack()
            delivery.nack()
            delivery.ack()
        (await take_one(deliveries)).ack()
        await bus.publish(kept, b"1", {})
        assert await take(deliveries, 1) == [b"1"]


async def test_what_a_member_gives_back_goes_to_one_that_waits(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g", prefetch=0) as unwilling, bus.subscribe(kept, "g", prefetch=0) as willing:
        await publish_all(bus, kept, numbered(1))
        waiting = asyncio.create_task(take_one(unwilling))
        delivery = await waiting
        heir = asyncio.create_task(take_one(willing))
        delivery.nack()
        taken = await heir
        assert (taken.body, taken.redelivered) == (b"0", True)


async def test_what_a_member_gives_back_and_leaves_is_not_lost(bus: Bus, kept: str) -> None:
    await bus.publish(kept, b"0", {})
    async with bus.subscribe(kept, "g", prefetch=0) as leaver:
        (await take_one(leaver)).nack()
    async with bus.subscribe(kept, "g", prefetch=0) as heir:
        assert await take(heir, 1) == [b"0"]


async def test_what_a_member_gives_back_for_later_comes_later_and_others_meanwhile(bus: Bus, kept: str) -> None:
    async with bus.subscribe(kept, "g", prefetch=0) as deliveries:
        await publish_all(bus, kept, numbered(2))
        first, loop = await take_one(deliveries), asyncio.get_running_loop()
        began = loop.time()
        first.nack(after=1.0)
        first.nack()
        first.ack()
        assert await take(deliveries, 1) == [b"1"]
        again = await take_one(deliveries)
        assert (again.body, loop.time() - began >= 1.0) == (b"0", True)
        again.ack()


async def test_what_a_member_gives_back_for_later_is_not_lost_when_it_leaves(bus: Bus, kept: str) -> None:
    await bus.publish(kept, b"0", {})
    async with bus.subscribe(kept, "g", prefetch=0) as leaver:
        (await take_one(leaver)).nack(after=3600.0)
    async with bus.subscribe(kept, "g", prefetch=0) as heir:
        assert await take(heir, 1) == [b"0"]


async def test_without_a_group_there_is_nothing_to_give_back(bus: Bus, topic: str) -> None:
    async with bus.subscribe(topic, None) as deliveries:
        await publish_all(bus, topic, numbered(2))
        first = await take_one(deliveries)
        first.nack()
        assert not first.redelivered
        assert await take(deliveries, 1) == [b"1"]
