"""A blocking source behind an asynchronous iterator: order, demand, cancelled waits, ends."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from tg_base.bus.core.threaded_reader import Source, ThreadedReader
from tg_schema.errors import BusError


class Item:
    """A delivery with a number for a body."""

    def __init__(self, number: int) -> None:
        self.body = b"%d" % number
        self.properties: Mapping[str, str] = {}
        self.age = 0.0
        self.redelivered = False

    def ack(self) -> None:
        """Nothing to do."""

    def nack(self) -> None:
        """Nothing to do."""


class QueueSource(Source):
    """A queue of this process, as a broker's client would block on one."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Item | Exception | None] = queue.SimpleQueue()
        self.received = threading.Semaphore(0)

    @override
    def receive(self) -> Item:
        item = self.items.get()
        if item is None:
            raise BusError("closed")
        if isinstance(item, Exception):
            raise item
        self.received.release()
        return item

    @override
    def close(self) -> None:
        self.items.put(None)

    def fill(self, first: int, beyond: int) -> None:
        for number in range(first, beyond):
            self.items.put(Item(number))


@asynccontextmanager
async def reading(source: QueueSource, ahead: int) -> AsyncIterator[ThreadedReader]:
    reader = ThreadedReader(asyncio.get_running_loop(), source, ahead)
    try:
        yield reader
    finally:
        reader.end()
        await asyncio.to_thread(reader.close)


@pytest.mark.parametrize("ahead", [0, 1, 7, 1000])
async def test_everything_arrives_in_order(ahead: int) -> None:
    source = QueueSource()
    async with reading(source, ahead) as reader, asyncio.timeout(10):
        source.fill(0, 300)
        assert [(await anext(reader)).body for _ in range(300)] == [b"%d" % number for number in range(300)]


async def test_the_thread_takes_no_more_than_it_may() -> None:
    source = QueueSource()
    source.fill(0, 10)
    async with reading(source, 3) as reader:
        for _ in range(3):
            assert await asyncio.to_thread(source.received.acquire, timeout=5)
        assert source.items.qsize() == 7
        await anext(reader)
        assert await asyncio.to_thread(source.received.acquire, timeout=5)
        assert source.items.qsize() == 6


async def test_without_demand_nothing_is_taken() -> None:
    source = QueueSource()
    source.fill(0, 2)
    async with reading(source, 0) as reader:
        assert (await anext(reader)).body == b"0"
        assert source.items.qsize() == 1


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


async def test_an_unforeseen_end_of_the_thread_is_an_error_for_all_who_wait() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(3)]
        await asyncio.sleep(0)
        source.items.put(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, BusError)


async def test_an_end_of_our_own_ends_the_iteration() -> None:
    source = QueueSource()
    async with reading(source, 0) as reader, asyncio.timeout(10):
        waiting = asyncio.ensure_future(anext(reader, None))
        await asyncio.sleep(0)
        reader.end()
        assert await waiting is None
