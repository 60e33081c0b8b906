"""A deadline that a machine which stands still does not break: it counts while the loop turns."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
TICK_SECONDS = 0.02


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """What is awaited, if it comes in so many seconds of a loop that turns.

    A pause of the process or of the machine, however long, counts as one tick.

    Raises:
        TimeoutError: it did not come; it is cancelled.
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
