"""A deadline that counts only the time in which the event loop runs: a machine that stalls does not break it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
TICK_SECONDS = 0.02


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """Await something for at most this many seconds of a running loop, and return its result.

    A pause of the process or of the machine, however long, counts as one tick.

    Raises:
        TimeoutError: it was not done in time; it is cancelled.
    """
    task = asyncio.ensure_future(awaited)
    try:
        for _ in range(round(seconds / TICK_SECONDS)):
            done, _ = await asyncio.wait([task], timeout=TICK_SECONDS)
            if done:
                return await task
        raise TimeoutError(f"not within {seconds:g} s")
    finally:
        task.cancel()
