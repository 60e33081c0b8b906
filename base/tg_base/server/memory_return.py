"""Process at rest -> system: gives back the memory that a burst of streams has left to the allocators."""

import asyncio
import ctypes
import gc
from collections.abc import Callable

import structlog

from tg_base.runtime import start_daemon_thread
from tg_base.server.memory_balloon import MemoryBalloon
from tg_base.server.spare_objects import SpareObjects

log = structlog.get_logger()

LOOK_SECONDS = 15.0
"""Seconds between two checks of the process."""
GUARD_SECONDS = 0.5
"""The same while the balloon holds memory that a new burst could use."""
SETTLING_SECONDS = (20.0, 60.0)
"""Seconds after a burst at which memory is given back, twice: idle connections, which fragment the free memory, close
after 15 s, and idle producers after a minute."""
MIN_ENDED_TASKS = 500
"""Tasks that must have ended since their peak: the memory of fewer is soon used again."""
MAX_RESTING_TASKS = 1000
"""Tasks of a process at rest: a collection then stops the event loop for about 10 ms at the most."""


class RestWatch:
    """Says when a burst is over: at least half of its tasks have ended, and few are left.

    Attributes:
        most: the peak of tasks since the last burst.
    """

    def __init__(self) -> None:
        self.most = 0

    def is_over(self, tasks: int) -> bool:
        """Whether a burst has ended since the last call; True once for each burst."""
        ended = max(self.most, tasks) - tasks
        over = MIN_ENDED_TASKS <= ended >= tasks and tasks <= MAX_RESTING_TASKS
        self.most = tasks if over else max(self.most, tasks)
        return over


async def return_memory_at_rest() -> None:
    """Give memory back after each burst, until cancelled; nothing to do where the C library has no `malloc_trim`."""
    trim = find_trim()
    if trim is not None:
        # By then the process has imported what it needs, and has opened its models.
        await asyncio.sleep(LOOK_SECONDS)
        await MemoryReturn(trim).run()


class MemoryReturn:
    """What `return_memory_at_rest` does, with what it keeps between two bursts.

    Args:
        trim: gives back what the C library has free.

    Attributes:
        balloon: holds what Python's allocator had free.
    """

    def __init__(self, trim: Callable[[], object]) -> None:
        self.balloon = MemoryBalloon()
        self._loop = asyncio.get_running_loop()
        self._trim = trim
        self._watch = RestWatch()
        self._spares = SpareObjects()
        self._resting = 0

    async def run(self) -> None:
        """Check the process at intervals, until cancelled."""
        while True:
            await self._wait(LOOK_SECONDS)
            if not self._watch.is_over(self._count_tasks()):
                continue
            for seconds in SETTLING_SECONDS:
                await self._wait(seconds)
                # Another burst may have begun.
                if self._count_tasks() <= MAX_RESTING_TASKS:
                    await self.return_memory()

    async def return_memory(self) -> None:
        """Give back what is free now; the process counts as resting with the tasks that it has."""
        self._resting = self._count_tasks()
        await self._spares.renew()
        # Also empties the interpreter's free lists: a single object in them keeps its arena.
        gc.collect()
        await self.balloon.inflate()
        await start_daemon_thread(self._trim, "trim")
        log.debug("process.memory_returned", pools=self.balloon.pools)

    async def make_room(self) -> None:
        """If a new burst has begun, give back the balloon's pools: otherwise the burst would map new memory."""
        tasks = self._count_tasks()
        if tasks - self._resting >= MIN_ENDED_TASKS:
            # By the next check the burst may be over.
            self._watch.most = max(self._watch.most, tasks)
            await self.balloon.deflate()

    async def _wait(self, seconds: float) -> None:
        end = self._loop.time() + seconds
        while (left := end - self._loop.time()) > 0:
            if self.balloon.pools:
                await asyncio.sleep(min(left, GUARD_SECONDS))
                await self.make_room()
            else:
                await asyncio.sleep(left)

    def _count_tasks(self) -> int:
        return len(asyncio.all_tasks(self._loop))


def find_trim() -> Callable[[], object] | None:
    """The `malloc_trim` of glibc, which gives back whole pages that are free; None in another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return lambda: trim(0)
