"""Small parts for thousands of streams: alarms that share one timer of the loop, and short queues.

A timer of uvloop takes 0.54 KiB, with its callback, its context and libuv's part. Each stream has three deadlines,
which are nearly never reached. An empty deque takes 0.7 KiB.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeVar
from weakref import WeakKeyDictionary, ref

MIN_CANCELLED_ALARMS: Final = 64
"""Cancelled alarms that are kept until their time; any more are dropped once they are half of all."""
TIMER_SECONDS: Final = 0.001
"""The resolution of a loop's timers. uvloop's may fire half of it too early, so all are set this much later: a callback
that comes too early would re-arm itself over and over until its time."""
Item = TypeVar("Item")


class Alarm:
    """Calls `ring` once, in a turn of the running loop of its own and never too early, unless it is cancelled before.

    Args:
        due: loop time.
        ring: called in an empty context, since it belongs to no request.
    """

    __slots__ = ("_alarms", "ring")

    def __init__(self, due: float, ring: Callable[[], object]) -> None:
        self.ring: Callable[[], object] | None = ring
        # None = its time has come.
        self._alarms: _Alarms | None = _find_alarms(asyncio.get_running_loop())
        self._alarms.add(due, self)

    def cancel(self) -> None:
        """Never call `ring`, and drop the reference to it."""
        if self.ring is not None:
            self.ring = None
            if self._alarms is not None:
                self._alarms.note_cancelled()

    def fall_due(self) -> None:
        """Schedule the call, since its time has come. Tasks that run before it may still cancel."""
        self._alarms = None
        # An alarm that fails must not keep the others from being called.
        asyncio.get_running_loop().call_soon(self._call, context=Context())

    def _call(self) -> None:
        ring, self.ring = self.ring, None
        if ring is not None:
            ring()

    def __lt__(self, other: object) -> bool:
        """Compare alarms for the same time: any may come first."""
        return False


class _Alarms:
    """The alarms of one loop. Only its timer and the alarms themselves refer to it.

    Nothing else may: timers and callbacks refer to their loop, and would keep a closed one in memory.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, Alarm]] = []
        self._cancelled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    def add(self, due: float, alarm: Alarm) -> None:
        heappush(self._heap, (due, alarm))
        if due < self._timer_due:
            self._arm(due)

    def note_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled == len(self._heap):
            # A loop that waits for nothing has no timer, so that it can rest.
            self._heap.clear()
            self._cancelled = 0
            self._disarm()
        elif self._cancelled > MIN_CANCELLED_ALARMS and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1].ring is not None]
            heapify(self._heap)
            self._cancelled = 0

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, inf

    def _arm(self, due: float) -> None:
        self._disarm()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_at(due + TIMER_SECONDS, self._ring, context=Context())

    def _ring(self) -> None:
        heap = self._heap
        self._timer, self._timer_due = None, inf
        now = asyncio.get_running_loop().time()
        while heap and (heap[0][0] <= now or heap[0][1].ring is None):
            _, alarm = heappop(heap)
            if alarm.ring is None:
                self._cancelled -= 1
            else:
                alarm.fall_due()
        if heap:
            self._arm(heap[0][0])


_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Alarms]]] = WeakKeyDictionary()


def _find_alarms(loop: asyncio.AbstractEventLoop) -> _Alarms:
    known = _LOOPS.get(loop)
    alarms = None if known is None else known()
    if alarms is None:
        alarms = _Alarms()
        _LOOPS[loop] = ref(alarms)
    return alarms


class FewItems(list[Item]):
    """Replaces a deque that seldom has more than one item, in the objects of another library: empty it has 56 bytes."""

    __slots__ = ()

    def popleft(self) -> Item:
        """Remove and return the first item, as a deque does."""
        return self.pop(0)
