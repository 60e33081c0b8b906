"""Announcements -> one time for all requestors, though the clocks of their machines differ.

Times that outlive a process are written by one machine and read by another. A broker offers no time: a message carries
its publisher's. But every requestor hears the same processes announce themselves, each with its clock.
"""

import time
from asyncio import Event
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import structlog

from tg_base.runtime import is_set_within

log = structlog.get_logger()

SAMPLES: Final = 8
"""How many of a process's announcements count. The one with the shortest transit is the most accurate."""
HEARD_SECONDS: Final = 10.0
"""A process no longer counts this many seconds after its last announcement."""
FEW_PROCESSES: Final = 10
RENEWED_SECONDS: Final = 1.0
"""Seconds between two comparisons of all clocks, if there are more than `FEW_PROCESSES`."""
MAX_PROCESSES: Final = 10_000
"""How many processes are remembered; beyond that, the one heard least recently is forgotten."""
WARNING_SECONDS: Final = 5.0
"""How far our own clock may differ from the others', and by how much that difference may change, before a line is
logged."""


@dataclass(slots=True)
class _Process:
    """When it was heard last (monotonic), and how far its clock was ahead of that time."""

    heard: float = 0.0
    ahead: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class SharedTime:
    """Seconds since 1970 by the median of the clocks of the processes that announce themselves.

    So all requestors that hear the same processes have the same time, even if one's own clock is wrong. While no
    process is heard, the shared time runs on from the last median. Before the first announcement it is our own clock's.

    Args:
        clock: our own clock on the wall, in seconds.
        monotonic: a clock that is never set back.
    """

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = monotonic
        self._processes: dict[str, _Process] = {}
        self._ahead: float | None = None
        self._renewed_at = 0.0
        self._told = 0.0
        self._known = Event()

    def __call__(self) -> float:
        """Now."""
        return self._clock() if self._ahead is None else self._now() + self._ahead

    async def until_known(self, seconds: float) -> None:
        """Return when a process was heard, or after `seconds`."""
        await is_set_within(self._known, seconds)

    def note(self, process: str, age: float) -> None:
        """A process has announced itself, in a message of this age by our own clock."""
        now = self._now()
        known = self._processes.pop(process, None) or _Process()
        # Our own clock may be set at any time.
        known.ahead.append(self._clock() - age - now)
        known.heard = now
        self._processes[process] = known
        if len(self._processes) > MAX_PROCESSES:
            del self._processes[next(iter(self._processes))]
        if len(self._processes) <= FEW_PROCESSES or now >= self._renewed_at + RENEWED_SECONDS:
            self._renew(now)

    def _renew(self, now: float) -> None:
        self._renewed_at = now
        while (first := next(iter(self._processes))) and self._processes[first].heard < now - HEARD_SECONDS:
            del self._processes[first]
        self._ahead = median(max(each.ahead) for each in self._processes.values())
        self._known.set()
        apart = self._clock() - self()
        # A first announcement alone may have been under way for long, while a process starts on a busy machine.
        is_sure = any(len(each.ahead) > 1 for each in self._processes.values())
        if is_sure and abs(apart - self._told) > WARNING_SECONDS:
            self._told = apart
            log.warning("clock.differs", seconds_ahead=round(apart, 1), processes=len(self._processes))
