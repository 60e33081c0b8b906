"""Waiting for what no event tells of."""

import asyncio
from collections.abc import Callable

TICK_SECONDS = 0.005
AT_ONCE_SECONDS = 15.0
"""For what is promised within a second, of a machine that is not loaded, and what nothing brings about later."""


async def until(true: Callable[[], object], within: float = 60.0) -> None:
    """Return once it is true.

    The seconds are those of a loop that turns: a pause of the machine counts as one tick. Where another process is
    waited for, they pass as on a clock: half of a test's limit, so that one that is slower by far still has the time.

    Raises:
        AssertionError: it did not become true.
    """
    for _ in range(round(within / TICK_SECONDS)):
        if true():
            return
        await asyncio.sleep(TICK_SECONDS)
    raise AssertionError(f"it did not become true within {within:g} s")
