"""What is published arrives: whole, once, in order, by whoever should get it."""

import asyncio

import pytest

from tests.conformance.reading import numbered, publish_all, take, take_one
from tg_base.bus import MAX_MESSAGE_BYTES, Bus
from tg_schema.errors import BadRequest, TooLarge

AWKWARD_BODIES = [b"", b"\x00", bytes(range(256)), b"\xff\xfe{", '"\u2028\U0001f600"'.encode(), b"x" * 100_000]


@pytest.mark.parametrize("group", ["readers", None])
async def test_messages_of_one_task_keep_their_order(bus: Bus, topic: str, group: str | None) -> None:
    sent = numbered(500)
    async with bus.subscribe(topic, group) as deliveries:
        await publish_all(bus, topic, sent)
        assert await take(deliveries, len(sent)) == sent


async def test_any_bytes_and_properties_arrive_as_they_were(bus: Bus, topic: str) -> None:
    properties = {"id": "1", "empty": "", "text": 'ä"\n\u2028\U0001f600', "traceparent": "00-" + "a" * 55}
    async with bus.subscribe(topic, None) as deliveries:
        for body in AWKWARD_BODIES:
            await bus.publish(topic, body, properties)
            delivery = await take_one(deliveries)
            assert delivery.body == body
            assert dict(delivery.properties) == properties


async def test_a_message_without_properties_has_none(bus: Bus, topic: str) -> None:
    async with bus.subscribe(topic, None) as deliveries:
        await bus.publish(topic, b"bare", {})
        assert dict((await take_one(deliveries)).properties) == {}


async def test_age_counts_from_the_publish(bus: Bus, kept: str) -> None:
    await bus.publish(kept, b"old", {})
    async with bus.subscribe(kept, "readers") as deliveries:
        delivery = await take_one(deliveries)
        assert -0.1 < delivery.age < 20.0
        assert delivery.age <= delivery.age


async def test_the_largest_message_travels_and_a_larger_one_disturbs_nothing(bus: Bus, topic: str) -> None:
    largest = bytes(MAX_MESSAGE_BYTES)
    async with bus.subscribe(topic, None) as deliveries:
        await bus.publish(topic, largest, {"id": "x" * 1000})
        assert await take(deliveries, 1) == [largest]
        with pytest.raises(TooLarge):
            await bus.publish(topic, largest + b"!", {})
        await bus.publish(topic, b"after", {})
        assert await take(deliveries, 1) == [b"after"]


@pytest.mark.parametrize(
    "name", ["", "requests", "persistent://tg/request", "kafka://tg/request/x", "persistent://a/b/c d"]
)
async def test_what_is_no_topic_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(BadRequest):
        await bus.publish(name, b"", {})
    with pytest.raises(BadRequest):
        async with bus.subscribe(name, None):
            pass


async def test_many_tasks_publish_at_once(bus: Bus, topic: str) -> None:
    sent = [numbered(50, f"{task}-") for task in range(40)]
    async with bus.subscribe(topic, None, prefetch=5000) as deliveries:
        async with asyncio.TaskGroup() as tasks:
            for bodies in sent:
                tasks.create_task(publish_all(bus, topic, bodies))
        received = await take(deliveries, 40 * 50)
    for task, bodies in enumerate(sent):
        assert [body for body in received if body.startswith(b"%d-" % task)] == bodies


async def test_every_reader_without_a_group_gets_everything_from_now_on(bus: Bus, topic: str) -> None:
    await bus.publish(topic, b"before", {})
    async with bus.subscribe(topic, None) as one, bus.subscribe(topic, None) as other:
        await publish_all(bus, topic, numbered(20))
        assert await take(one, 20) == numbered(20)
        assert await take(other, 20) == numbered(20)


async def test_groups_and_lone_readers_do_not_take_from_each_other(bus: Bus, topic: str) -> None:
    async with (
        bus.subscribe(topic, "a") as a,
        bus.subscribe(topic, "b") as b,
        bus.subscribe(topic, None) as lone,
    ):
        await publish_all(bus, topic, numbered(20))
        for deliveries in (a, b, lone):
            assert await take(deliveries, 20) == numbered(20)


async def test_a_publish_that_nobody_hears_succeeds(bus: Bus, topic: str) -> None:
    await publish_all(bus, topic, numbered(5))
