"""A blocking source behind an asynchronous iterator: order, defects, ends."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from tests.unit.test_bounded_reader import Item
from tg_base.bus.core.api import Delivery
from tg_base.bus.core.bounded_reader import BoundedReader
from tg_base.bus.core.threaded_source import BlockingSource, ThreadedSource
from tg_schema import TgError
from tg_schema.errors import BusError


class Waiting(BlockingSource[Item]):
    """A queue of this process, on which the thread blocks as on a broker's client."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Item | Exception] = queue.SimpleQueue()

    @override
    def wait(self) -> Item:
        item = self.items.get()
        if isinstance(item, Exception):
            raise item
        return item

    @override
    def receive(self, taken: Callable[[Item | TgError], None]) -> None:
        raise AssertionError("only one way of receiving is used")

    @override
    def open(self, message: Item) -> Delivery:
        return message

    @override
    def close(self) -> None:
        # Every later wait fails as well.
        for _ in range(3):
            self.items.put(BusError("closed"))


@asynccontextmanager
async def reading(source: Waiting, ahead: int) -> AsyncIterator[BoundedReader[Item]]:
    reader = BoundedReader(asyncio.get_running_loop(), ThreadedSource(source), ahead)
    try:
        yield reader
    finally:
        reader.end()
        await asyncio.to_thread(reader.close)
        assert "bus-reader" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("ahead", [0, 1, 1000])
async def test_everything_arrives_in_order(ahead: int) -> None:
    source = Waiting()
    async with reading(source, ahead) as reader, asyncio.timeout(20):
        for number in range(1000):
            source.items.put(Item(number))
        assert [(await anext(reader)).body for _ in range(1000)] == [b"%d" % number for number in range(1000)]


async def test_a_reader_that_was_never_asked_ends() -> None:
    async with reading(Waiting(), 0):
        pass


@pytest.mark.parametrize("ahead", [0, 7])
@pytest.mark.parametrize("error", [BusError("lost"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")])
async def test_the_end_of_the_source_is_an_error_for_all_who_wait(error: Exception, ahead: int) -> None:
    source = Waiting()
    async with reading(source, ahead) as reader, asyncio.timeout(20):
        waiting = [asyncio.ensure_future(anext(reader)) for _ in range(3)]
        await asyncio.sleep(0)
        source.items.put(error)
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, BusError)
