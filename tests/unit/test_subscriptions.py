"""A subscription that ends by itself is opened again, and loses nothing; no message ends the reading."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from tests.fakes.ending_bus import EndingBus
from tests.until import until
from tg_base.bus import Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import Subscriptions
from tg_base.protocol.subscriptions import MAX_TURN_BYTES
from tg_schema.errors import BadRequest, BusError

INBOX = "non-persistent://tg/flow/inbox"
QUEUE = "persistent://tg/request/queue"
ENDS = [None, BusError("the broker refused; try again"), ValueError("a defect")]


@pytest.fixture
def bus() -> EndingBus:
    return EndingBus(MemoryBus())


async def soon(waiting: Awaitable[Delivery]) -> bytes:
    """The body that comes, in time."""
    async with asyncio.timeout(20):
        return (await waiting).body


@asynccontextmanager
async def heard(subscriptions: Subscriptions) -> AsyncIterator[list[bytes]]:
    """What comes on the inbox."""
    bodies: list[bytes] = []

    def handle(delivery: Delivery) -> None:
        bodies.append(delivery.body)
        if delivery.body == b"bad":
            raise BadRequest("bad")
        if delivery.body == b"defect":
            raise OverflowError("a defect")

    async with subscriptions.each(INBOX, handle):
        yield bodies


@pytest.mark.parametrize("error", ENDS)
async def test_a_queue_that_ends_loses_nothing(bus: EndingBus, error: Exception | None) -> None:
    async with Subscriptions(bus, give_up=60) as subscriptions, subscriptions.open(QUEUE, "g", prefetch=0) as requests:
        waiting = [asyncio.ensure_future(anext(requests)) for _ in range(3)]
        await asyncio.sleep(0)
        bus.end(QUEUE, error)
        await until(lambda: len(bus.opened) == 2)
        for number in range(3):
            await bus.publish(QUEUE, b"%d" % number, {})
        assert sorted([await soon(each) for each in waiting]) == [b"0", b"1", b"2"]


async def test_while_the_bus_is_away_nobody_gives_up(bus: EndingBus) -> None:
    async with Subscriptions(bus, give_up=0.01) as subscriptions, heard(subscriptions) as bodies:
        bus.away = True
        bus.end(INBOX)
        await asyncio.sleep(1.0)
        bus.away = False
        await until(lambda: subscriptions.failed == ())
        await bus.publish(INBOX, b"again", {})
        await until(lambda: bodies == [b"again"])


async def test_a_subscription_that_cannot_be_opened_at_the_start_is_an_error(bus: EndingBus) -> None:
    bus.refusing = True
    with pytest.raises(BusError):
        async with Subscriptions(bus, give_up=60) as subscriptions, heard(subscriptions):
            pass


async def test_leaving_ends_a_wait(bus: EndingBus) -> None:
    async with Subscriptions(bus, give_up=60) as subscriptions:
        async with subscriptions.open(QUEUE, "g") as requests:
            waiting = asyncio.ensure_future(anext(requests, None))
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await waiting is None


async def test_leaving_while_it_is_not_heard(bus: EndingBus) -> None:
    async with Subscriptions(bus, give_up=60) as subscriptions:
        async with heard(subscriptions):
            bus.refusing = True
            bus.end(INBOX)
            await until(lambda: subscriptions.failed == (INBOX,))
        assert subscriptions.failed == ()


async def test_no_message_ends_a_reading(bus: EndingBus) -> None:
    before = poison()
    async with Subscriptions(bus, give_up=60) as subscriptions, heard(subscriptions) as bodies:
        for body in (b"bad", b"defect", b"good"):
            await bus.publish(INBOX, body, {})
        await until(lambda: bodies == [b"bad", b"defect", b"good"])
    assert poison() == before + 2
    assert bus.opened == [INBOX]


def poison() -> float:
    """What the metric says."""
    return REGISTRY.get_sample_value("tg_poison_messages_total", {"topic": INBOX}) or 0.0


async def test_a_turn_handles_a_bounded_part_of_what_waits() -> None:
    """However many messages wait, whatever they hold, other tasks have their turn between them."""
    bus, size = MemoryBus(), 64 * 1024
    handled: list[int] = []
    turn = 0

    def handle(delivery: Delivery) -> None:
        handled.append(turn)

    async with Subscriptions(bus, give_up=60) as subscriptions, subscriptions.each(INBOX, handle):
        for _ in range(40):
            await bus.publish(INBOX, bytes(size), {})
        while len(handled) < 40:
            await asyncio.sleep(0)
            turn += 1
    assert max(handled.count(turn) for turn in handled) <= MAX_TURN_BYTES // size
