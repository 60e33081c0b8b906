"""A blocking iterator in the event loop: order, bounds, errors, leaving."""

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tg_bedrock.threaded_stream import ThreadedStream
from tg_schema.errors import Unavailable


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(4)
    yield pool
    await asyncio.to_thread(pool.shutdown)


async def all_of(stream: ThreadedStream[int], into: list[int]) -> list[int]:
    while batch := await stream.batch():
        into.extend(batch)
    return into


async def test_everything_comes_in_order(threads: ThreadPoolExecutor) -> None:
    def read() -> Generator[int, None, None]:
        yield from range(10_000)

    async with ThreadedStream(threads, read, ahead=7) as stream:
        assert await all_of(stream, []) == list(range(10_000))
        assert await stream.batch() == []


async def test_an_error_comes_after_the_items_before_it(threads: ThreadPoolExecutor) -> None:
    def read() -> Generator[int, None, None]:
        yield from range(100)
        raise Unavailable("no more")

    received: list[int] = []
    async with ThreadedStream(threads, read) as stream:
        with pytest.raises(Unavailable, match="no more"):
            await all_of(stream, received)
    assert received == list(range(100))


async def test_the_thread_is_never_further_ahead_than_allowed_and_ends_when_left(threads: ThreadPoolExecutor) -> None:
    made = 0
    full, closed = threading.Event(), threading.Event()

    def read() -> Generator[int, None, None]:
        nonlocal made
        try:
            while True:
                made += 1
                if made == 6:
                    full.set()
                yield made
        finally:
            closed.set()

    async with ThreadedStream(threads, read, ahead=5):
        assert await asyncio.to_thread(full.wait, 10)
        assert made == 6  # the sixth waits for room
    assert await asyncio.to_thread(closed.wait, 10)
    assert made == 6


async def test_a_stream_that_is_left_before_its_thread_begins_never_reads() -> None:
    begun = False

    def read() -> Generator[int, None, None]:
        nonlocal begun
        begun = True
        yield 1

    free = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(free.wait)
    async with ThreadedStream(pool, read):
        pass
    free.set()
    await asyncio.to_thread(pool.shutdown)
    assert not begun
