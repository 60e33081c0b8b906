"""A subscription that ends by itself is opened again; meanwhile it shows; without hope the process ends with a word."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.ending_bus import EndingBus
from tests.fakes.given_delivery import GivenDelivery
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
async def test_what_ends_by_itself_is_opened_again(bus: EndingBus, error: Exception | None) -> None:
    async with Subscriptions(bus, give_up=60) as subscriptions, heard(subscriptions) as bodies:
        for number in range(3):
            await bus.publish(INBOX, b"%d" % number, {})
            await until(lambda: len(bodies) == number + 1)  # noqa: B023 - called at once
            bus.end(INBOX, error)
            await until(lambda: len(bus.opened) == number + 2)  # noqa: B023 - called at once
        assert bodies == [b"0", b"1", b"2"]
        assert subscriptions.failed == ()


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


async def test_what_is_not_heard_shows_at_once_until_it_is_heard_again(bus: EndingBus) -> None:
    changes: list[tuple[str, ...]] = []

    def on_change() -> None:
        changes.append(subscriptions.failed)

    async with Subscriptions(bus, give_up=60, on_change=on_change) as subscriptions, heard(subscriptions) as bodies:
        bus.refusing = True
        await asyncio.sleep(0)
        bus.end(INBOX)
        await until(lambda: subscriptions.failed == (INBOX,))
        assert changes == [(INBOX,)]
        bus.refusing = False
        await until(lambda: subscriptions.failed == ())
        assert changes == [(INBOX,), ()]
        await bus.publish(INBOX, b"again", {})
        await until(lambda: bodies == [b"again"])


async def hear_for_ever(bus: EndingBus) -> None:
    """Hear nothing any more, and wait."""
    async with Subscriptions(bus, give_up=0.3) as subscriptions, heard(subscriptions):
        bus.refusing = True
        bus.end(INBOX)
        await asyncio.Event().wait()


async def test_without_hope_the_task_that_entered_ends_with_a_sentence(bus: EndingBus) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(
            BusError, match=f"refused the subscription to {INBOX} for 0.3 s: the broker does not let us"
        ):
            await hear_for_ever(bus)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


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


async def test_a_message_with_unreadable_properties_is_counted_and_never_handled() -> None:
    """A memory bus carries none; the real broker's are in tests/connected/test_poisoned_topics.py."""
    before = poison()
    bus = _UnreadableBus()
    async with Subscriptions(bus, give_up=60) as subscriptions, heard(subscriptions) as bodies:
        await until(lambda: bodies == [b"readable"])
    assert poison() == before + 1


class _UnreadableBus(EndingBus):
    """Delivers one message that is unreadable, then one that is not."""

    def __init__(self) -> None:
        super().__init__(MemoryBus())

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        yield self._two()

    async def _two(self) -> AsyncIterator[Delivery]:
        yield GivenDelivery(b"unreadable", None)
        yield GivenDelivery(b"readable", {})
        await asyncio.Event().wait()


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
