"""Responses that a model works on when they are deleted, or when their gateway shuts down: what the queue is told."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tests.flow.open_gateway import CONFIG, TEXTS
from tests.flow.open_responses import MODEL
from tests.flow.waiting_gateways import ASKED_BEFORE, DEADLINE, FLEX, ask, open_gateways, until_end
from tests.until import until
from tg_base.bus import Bus, Delivery, Entry, LogWriter
from tg_gateway.access import Limits
from tg_gateway.jobs.log import (
    END,
    MAKER,
    JobLog,
    kind_of,
    label_asked,
    label_returned,
)

ALIVE = Limits(silence=1000.0)
"""Nobody is taken for dead within the test."""
TURNS = 100
"""Of the event loop: more than a gateway needs to close what waits for nothing."""


class WatchedBus(PassingBus):
    """Says when the only message of the flex queue is returned or acknowledged, and how many requests came."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.acknowledged, self.returned = asyncio.Event(), asyncio.Event()
        self.asked = 0

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        self.asked += topic == TEXTS[0].request
        await super().publish(topic, body, properties)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        async with super().subscribe(topic, group, prefetch=prefetch) as deliveries:
            yield self._watch(deliveries) if "/tg-flex-" in topic else deliveries

    async def _watch(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            yield _WatchedDelivery(delivery, self)


class _WatchedDelivery:
    def __init__(self, delivery: Delivery, bus: WatchedBus) -> None:
        self._delivery = delivery
        self._bus = bus
        self.body, self.properties = delivery.body, delivery.properties
        self.age, self.redelivered = delivery.age, delivery.redelivered

    def ack(self) -> None:
        self._delivery.ack()
        self._bus.acknowledged.set()

    def nack(self, after: float = 0.0) -> None:
        self._delivery.nack(after)
        self._bus.returned.set()


async def test_what_is_deleted_while_a_model_works_on_it_leaves_the_band_at_once() -> None:
    async with open_gateways() as it:
        it.bus = bus = WatchedBus(it.bus)
        client = await it.open_gateway(limits=ALIVE)
        made = await ask(client, "made")
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        await client.responses.delete(made.id)
        await asyncio.wait_for(it.llm.stopped.wait(), DEADLINE)
        # Not after as long as a gateway that is silent counts as alive.
        await asyncio.wait_for(bus.acknowledged.wait(), DEADLINE)


async def test_what_is_cancelled_in_its_pause_is_asked_of_nobody() -> None:
    async with open_gateways() as it:
        it.bus = bus = WatchedBus(it.bus)
        client = await it.open_gateway(limits=ALIVE)
        work = await it.occupy(client)
        made = await ask(client, "made")
        topic = CONFIG.topics.kept(made.id)
        for note in (ASKED_BEFORE, label_returned("dead", time.time() + 2)):
            await bus.append(topic, b"", note)
        it.llm.steps.release()
        await work
        await asyncio.wait_for(bus.returned.wait(), DEADLINE)
        assert (await client.responses.cancel(made.id)).status == "cancelled"
        await asyncio.wait_for(bus.acknowledged.wait(), DEADLINE)
        # For the work alone.
        assert (bus.asked, it.llm.order) == (1, ["work"])


class HeldBus(PassingBus):
    """Its broker takes no entry that says how an answer stands, before it is told to.

    Attributes:
        held: set when there is one.
        go: set it to let all pass.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.held, self.go = asyncio.Event(), asyncio.Event()

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if properties["kind"] == END or (properties["kind"] == MAKER and "claim" not in properties):
            self.held.set()
            await self.go.wait()
        return await super().append(topic, body, properties)

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        yield LogWriter(topic, self.append)


@pytest.mark.parametrize(("attempts", "last"), [(1, END), (2, MAKER)])
async def test_a_gateway_that_shuts_down_says_how_what_it_made_stands(attempts: int, last: str) -> None:
    async with open_gateways() as it:
        it.bus = bus = HeldBus(it.bus)
        client = await it.open_gateway(limits=ALIVE)
        made = await ask(client, "made", extra_body={"max_attempts": attempts})
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        closing = asyncio.create_task(it.gateways[0].aclose())
        await asyncio.wait_for(bus.held.wait(), DEADLINE)
        # All else is closed by then.
        for _ in range(TURNS):
            await asyncio.sleep(0)
        bus.go.set()
        await closing
        # Nobody has to wait for its silence.
        assert kind_of((await it.bus.read(CONFIG.topics.kept(made.id)))[-1]) == last


@pytest.mark.parametrize("asked", [False, True])
async def test_what_waits_in_the_hands_of_a_gateway_that_drains_goes_to_another_one(asked: bool) -> None:
    async with open_gateways(capacity=2, room=2) as it:
        it.bus = followed = ReadBus(it.bus)
        limits = Limits(silence=0.5)
        client = await it.open_gateway(replace(FLEX, drain=DEADLINE * 2), limits=limits)
        for _ in range(2):
            await client.responses.create(model=MODEL, input="1", background=True)
        await until(lambda: len(it.llm.order) == 2)
        made = await ask(client, "made")
        topic = CONFIG.topics.kept(made.id)
        # It pauses, or it waits for the end of who has it, and cannot be followed.
        pausing: list[Mapping[str, str]] = [ASKED_BEFORE, label_returned("dead", time.time() + 1)]
        for note in [label_asked("dead")] if asked else pausing:
            await it.bus.append(topic, b"", note)
        before = followed.reads[topic]
        # One of both ends; the gateway has the other one until all is seen.
        it.llm.steps.release()
        await until(lambda: followed.reads[topic] > before)
        await it.open_gateway(limits=limits)
        closing = asyncio.create_task(it.gateways[0].aclose())
        before = followed.reads[topic]
        await until(lambda: followed.reads[topic] > before if asked else it.llm.order[2:] == ["made"])
        assert not closing.done()
        for _ in range(2):
            it.llm.steps.release()
        await closing


class ReadBus(PassingBus):
    """Counts how often its logs are read."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.reads = Counter[str]()

    @override
    async def read(self, topic: str) -> tuple[Entry, ...]:
        self.reads[topic] += 1
        return await super().read(topic)


class OvertakenBus(PassingBus):
    """Before an end of its gateway another one, which has got the message, takes the answer and asks a model."""

    @override
    async def append(self, topic: str, body: bytes, properties: Mapping[str, str]) -> str:
        if properties["kind"] == END:
            maker = JobLog(await self.read(topic)).maker
            await super().append(topic, b"", label_asked("other", maker))
        return await super().append(topic, body, properties)


async def test_that_the_time_is_over_says_nothing_of_what_another_gateway_has_begun() -> None:
    async with open_gateways() as it:
        bus, it.bus = it.bus, OvertakenBus(it.bus)
        client = await it.open_gateway(limits=ALIVE)
        work = await it.occupy(client)
        made = await ask(client, "made", extra_body={"max_wait": 0.2})
        await until_end(bus, made.id)
        log = JobLog(await bus.read(CONFIG.topics.kept(made.id)))
        assert (log.outcome, log.maker) == ("running", "other")
        it.llm.steps.release()
        await work
