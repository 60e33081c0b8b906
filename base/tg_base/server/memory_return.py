"""Process at rest -> system: gives back the memory that a burst of streams has left to the allocators."""

import asyncio
import ctypes
import gc
from collections.abc import Callable

import structlog

from tg_base.runtime import start_daemon_thread

log = structlog.get_logger()

LOOK_SECONDS = 15.0
"""Seconds between two looks at the process."""
SETTLING_SECONDS = (20.0, 60.0)
"""Seconds after a burst until memory is given back, and again: idle connections, which lie between what is free, are
closed after 15 s, and idle producers after a minute."""
MIN_ENDED_TASKS = 500
"""Tasks that must have ended since the most ones that were seen: less memory is soon used again."""
MAX_RESTING_TASKS = 1000
"""Tasks of a process at rest: a collection then stops the event loop for about 10 ms at the most."""


class RestWatch:
    """Says when a burst is over: at least half of its tasks have ended, and few are left.

    Attributes:
        most: the most tasks that were seen since the last burst.
    """

    def __init__(self) -> None:
        self.most = 0

    def is_over(self, tasks: int) -> bool:
        """Whether a burst has ended since the last look; True once for each burst."""
        ended = max(self.most, tasks) - tasks
        over = MIN_ENDED_TASKS <= ended >= tasks and tasks <= MAX_RESTING_TASKS
        self.most = tasks if over else max(self.most, tasks)
        return over


async def return_memory_at_rest() -> None:
    """Give memory back after each burst, until cancelled; nothing to do where the C library has no `malloc_trim`."""
    watch, loop, trim = RestWatch(), asyncio.get_running_loop(), find_trim()
    while trim is not None:
        await asyncio.sleep(LOOK_SECONDS)
        if not watch.is_over(len(asyncio.all_tasks(loop))):
            continue
        for seconds in SETTLING_SECONDS:
            await asyncio.sleep(seconds)
            # Another burst may have begun.
            if len(asyncio.all_tasks(loop)) <= MAX_RESTING_TASKS:
                # Circles first, and the interpreter's free lists: a single object keeps its part of the memory.
                gc.collect()
                await start_daemon_thread(trim, "trim")
                log.debug("process.memory_returned")


def find_trim() -> Callable[[], object] | None:
    """The `malloc_trim` of glibc, which gives back whole pages that are free; None in another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return lambda: trim(0)
