"""What Python's allocator has free goes back to the system, whatever a few objects hold; and is there again after."""

import asyncio
import ctypes
import gc
import mmap
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

import pytest
import uvloop
from aiohttp.http_parser import RawRequestMessage, RawResponseMessage

from tests.missing import skip_or_fail
from tg_base.server.memory_balloon import MAX_NEW_BYTES, POOL_BYTES, MemoryBalloon
from tg_base.server.memory_return import MIN_ENDED_TASKS, MemoryReturn
from tg_base.server.spare_objects import SpareObjects

POOLS = 1000
"""Pools that a burst has filled."""
OBJECT_BYTES = 256


def make_holes() -> list[bytes]:
    """Leave free pools behind, and what holds their arenas."""
    blocks = POOL_BYTES // OBJECT_BYTES
    burst = [bytes(repeat(number % 251, OBJECT_BYTES - 33)) for number in range(POOLS * blocks)]
    return burst[:: 16 * blocks]


@pytest.fixture
def _pools_are_used() -> None:
    if os.environ.get("PYTHONMALLOC") or sys.flags.dev_mode:
        skip_or_fail("this Python has another allocator; run the tests without PYTHONMALLOC")


@pytest.mark.usefixtures("_pools_are_used")
async def test_free_pools_go_back_and_return() -> None:
    held = make_holes()
    before = [*held]
    balloon = MemoryBalloon()
    await balloon.inflate()
    taken = balloon.pools
    assert taken > POOLS // 2
    # Pages that the system has back are read as zeros.
    for pool in balloon.addresses[::100]:
        assert not any(ctypes.string_at(pool + mmap.PAGESIZE, POOL_BYTES - mmap.PAGESIZE))
    # Neither a second time nor what is made meanwhile disturbs it.
    more = make_holes()
    await balloon.inflate()
    assert balloon.pools > taken // 2
    assert held == before
    await balloon.deflate()
    assert balloon.pools == 0
    assert len(more) == len(held)


@pytest.mark.usefixtures("_pools_are_used")
async def test_a_burst_that_begins_meanwhile_ends_it() -> None:
    held, balloon, burst = make_holes(), MemoryBalloon(), list[list[bytes]]()
    await balloon.inflate()
    free = balloon.pools

    async def take_pools() -> None:
        # None of it goes, so each turn takes a pool of the arena that is new just then.
        for _ in range(1000):
            burst.append([bytes(400) for _ in range(60)])
            await asyncio.sleep(0)

    task = asyncio.create_task(take_pools())
    await balloon.inflate()
    assert not task.done()
    assert balloon.pools < free + 2 * MAX_NEW_BYTES // POOL_BYTES
    task.cancel()
    await balloon.deflate()
    assert held


def test_another_allocator_is_left_alone() -> None:
    script = (
        "import asyncio; from tg_base.server.memory_balloon import MemoryBalloon as B; "
        "balloon = B(); asyncio.run(balloon.inflate()); print(balloon.pools)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONMALLOC": "malloc"}, capture_output=True, check=True
    )
    assert ended.stdout == b"0\n"


async def test_smaller_pools_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    held, balloon = make_holes(), MemoryBalloon()
    await balloon.inflate()
    assert balloon.pools == 0
    assert held


@asynccontextmanager
async def running_tasks(number: int) -> AsyncIterator[None]:
    """As many as a burst has."""
    over = asyncio.Event()
    tasks = [asyncio.create_task(over.wait()) for _ in range(number)]
    yield
    over.set()
    await asyncio.gather(*tasks)


@pytest.mark.usefixtures("_pools_are_used")
async def test_a_new_burst_gets_the_room() -> None:
    held, returning = make_holes(), MemoryReturn(int)
    await returning.return_memory()
    async with running_tasks(MIN_ENDED_TASKS // 2):
        await returning.make_room()
        assert returning.balloon.pools
    async with running_tasks(MIN_ENDED_TASKS):
        await returning.make_room()
        assert not returning.balloon.pools
    assert held


def test_free_lists_have_again_what_they_had() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        spares = SpareObjects()
        await spares.renew()
        gc.collect()
        before, blocks = spares.addresses, sys.getallocatedblocks()
        # A burst, whose last objects stay in the lists.
        timers = [loop.call_later(1000, int) for _ in range(1000)]
        for timer in timers[::2] + timers[1::2]:
            timer.cancel()
        handles = [loop.call_soon(int) for _ in range(1000)]
        await asyncio.sleep(0)
        handles.reverse()
        none: Any = None
        asked = [RawRequestMessage("", "", *(none,) * 8) for _ in range(1000)]
        answered = [RawResponseMessage(none, 0, "", *(none,) * 6) for _ in range(1000)]
        del timer, timers, handles, asked, answered
        await spares.renew()
        # Some are of what the event loop itself does meanwhile.
        assert len(before & spares.addresses) > 0.9 * len(before)
        gc.collect()
        # More would stay where a library's list has become longer than what is known of it.
        assert sys.getallocatedblocks() - blocks < 200

    uvloop.run(check())
