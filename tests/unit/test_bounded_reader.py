"""A client's receives behind an asynchronous iterator: order, demand, cancelled waits, ends."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from tg_base.bus.core.api import Delivery
from tg_base.bus.core.bounded_reader import BoundedReader, Source
from tg_schema import TgError
from tg_schema.errors import BusError

UNREADABLE = -1


class Item:
    """A delivery with a number for a body."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.body = b"%d" % number
        self.properties: Mapping[str, str] = {}
        self.age = 0.0
        self.redelivered = False

    def ack(self) -> None:
        """Nothing to do."""

    def nack(self, after: float = 0.0) -> None:
        """Nothing to do."""


class QueueSource(Source[Item]):
    """A queue of this process, which answers as a broker's client does: at once with what it has, or from a thread."""

    def __init__(self) -> None:
        self.items: deque[Item | BusError] = deque()
        self.taken = 0
        self.most_under_way = 0
        self._pending: list[Callable[[Item | TgError], None]] = []
        self._changing = threading.Lock()

    @override
    def receive(self, taken: Callable[[Item | TgError], None]) -> None:
        with self._changing:
            self._pending.append(taken)
            self.most_under_way = max(self.most_under_way, len(self._pending))
        self.answer()

    @override
    def open(self, message: Item) -> Delivery:
        if message.number == UNREADABLE:
            raise ValueError("a defect")
        return message

    @override
    def close(self) -> None:
        self.items.append(BusError("closed"))
        self.answer()

    def fill(self, first: int, beyond: int) -> None:
        for number in range(first, beyond):
            self.items.append(Item(number))
            self.answer()

    def answer(self) -> None:
        """Answer what is under way, while there is something to answer with."""
        while True:
            with self._changing:
                if not self._pending or not self.items:
                    return
                taken, item = self._pending.pop(0), self.items[0]
                # Closed for good: every later receive is answered with the same error.
                if isinstance(item, Item):
                    self.items.popleft()
                    self.taken += 1
            taken(item)


@asynccontextmanager
async def reading(source: QueueSource, ahead: int) -> AsyncIterator[BoundedReader[Item]]:
    reader = BoundedReader(asyncio.get_running_loop(), source, ahead)
    try:
        yield reader
    finally:
        reader.end()
        await asyncio.to_thread(reader.close)
        assert source.most_under_way <= 1


@pytest.mark.parametrize("ahead", [0, 1, 7, 1000])
async def test_everything_arrives_in_order(ahead: int) -> None:
    source = QueueSource()
    async with reading(source, ahead) as reader, asyncio.timeout(10):
        source.fill(0, 300)
        assert [(await anext(reader)).body for _ in range(300)] == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("ahead", [0, 1, 7, 1000])
async def test_everything_arrives_in_order_from_another_thread(ahead: int) -> None:
    source = QueueSource()
    async with reading(source, ahead) as reader, asyncio.timeout(30):
        filling = asyncio.ensure_future(asyncio.to_thread(source.fill, 0, 20_000))
        assert [(await anext(reader)).body for _ in range(20_000)] == [b"%d" % number for number in range(20_000)]
        await filling


@pytest.mark.parametrize("backlog", [True, False])
async def test_a_long_backlog_does_not_exhaust_the_stack(backlog: bool) -> None:
    source = QueueSource()
    if backlog:
        source.fill(0, 5000)
    async with reading(source, 5000):
        source.fill(5000, 10_000)
        assert source.taken == 5000


async def test_no_more_is_taken_than_may_be() -> None:
    source = QueueSource()
    source.fill(0, 10)
    async with reading(source, 3) as reader:
        assert source.taken == 3
        await anext(reader)
        assert source.taken == 4


async def test_without_demand_nothing_is_taken() -> None:
    source = QueueSource()
    source.fill(0, 2)
    async with reading(source, 0) as reader:
        assert source.taken == 0
        assert (await anext(reader)).body == b"0"
        assert source.taken == 1


async def test_several_who_wait_get_one_each() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(source.fill, 0, 4)
        assert sorted([each.body for each in await asyncio.gather(*waiting)]) == [b"0", b"1", b"2"]
        assert source.taken == 3


async def test_a_cancelled_wait_leaves_its_message_to_the_next() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        for number in range(200):
            waiting = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0)
            source.fill(number, number + 1)
            waiting.cancel()
            await asyncio.wait([waiting])
            body = (await anext(reader) if waiting.cancelled() else waiting.result()).body
            assert body == b"%d" % number


async def test_an_end_of_the_source_is_an_error_for_all_who_wait() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(3)]
        await asyncio.sleep(0)
        source.close()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, BusError)
        with pytest.raises(BusError):
            await anext(reader)


async def test_a_message_that_cannot_be_opened_is_an_error_of_the_wait_alone() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        await asyncio.to_thread(source.fill, UNREADABLE, 1)
        with pytest.raises(ValueError, match="a defect"):
            await waiting
        assert (await anext(reader)).body == b"0"


async def test_an_end_of_our_own_ends_the_iteration() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = asyncio.ensure_future(anext(reader, None))
        await asyncio.sleep(0)
        reader.end()
        assert await waiting is None
