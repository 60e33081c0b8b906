"""Simulator -> one process's code: an event loop without a selector, which runs only when it is stepped."""

import asyncio
import heapq
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextvars import Context
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from typing_extensions import override

RESOLUTION = 1e-9
"""Seconds by which a timer may be early: sums of times are not exact."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedTask(asyncio.Task[Any]):
    """A task that sets of tasks hold in the same order in every run: by its number, not by its place in memory."""

    _numbers = count()

    def __init__(self, coro: Any, **options: Any) -> None:
        self._number = next(SimulatedTask._numbers)
        self.born: float = options["loop"].time()
        super().__init__(coro, **options)

    @override
    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """Everything of asyncio that needs no file descriptor works on it.

    Args:
        now: the simulator's clock.
        start: what this process's monotonic clock shows at the simulator's second 0.
    """

    # Of asyncio's own loop, and known to nobody else: what it runs next, and what it does with generators.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _asyncgen_firstiter_hook: Callable[[AsyncGenerator[Any, Any]], None]
    _asyncgen_finalizer_hook: Callable[[AsyncGenerator[Any, Any]], None]

    def __init__(self, now: Callable[[], float], start: float) -> None:
        super().__init__()
        self._now = now
        self._start = start
        self.set_task_factory(lambda loop, coro, **options: SimulatedTask(coro, loop=loop, **options))
        self.set_exception_handler(lambda loop, context: self.on_exception(context))
        self.on_exception: Callable[[dict[str, Any]], None] = lambda context: None

    @override
    def time(self) -> float:
        return self._now() + self._start

    @property
    def due(self) -> float:
        """The simulator's second at which there is something to do; infinity where there is nothing."""
        if self._ready:
            return 0.0
        scheduled = self._scheduled
        if scheduled and not scheduled[0]._cancelled:
            return scheduled[0].when() - self._start
        while scheduled and scheduled[0]._cancelled:
            _take_first(scheduled)
        return scheduled[0].when() - self._start if scheduled else float("inf")

    def step(self) -> int:
        """Run what is ready and what is due, as one iteration of a loop does; return how many callbacks that were."""
        ready, scheduled = self._ready, self._scheduled
        end = self.time() + RESOLUTION
        while scheduled and (scheduled[0].when() < end or scheduled[0]._cancelled):
            timer = _take_first(scheduled)
            if not timer._cancelled:
                ready.append(timer)
        ran = len(ready)
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)
        events._set_running_loop(self)
        try:
            for _ in range(ran):
                if self._closed:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)
        return ran

    @override
    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    @override
    def is_running(self) -> bool:
        return events._get_running_loop() is self

    @override
    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """At once: a thread would bring its own time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    def drop(self) -> None:
        """The process is dead: nothing of it runs any more, not even what it would do at its end."""
        self.on_exception = lambda context: None
        self.dropped = [*self._ready, *self._scheduled]  # kept, so that nothing of it dies while others live
        self._ready.clear()
        self._scheduled.clear()
        self._closed = True


def _take_first(scheduled: list[asyncio.TimerHandle]) -> asyncio.TimerHandle:
    """Take out the next timer, and let it know: one that is cancelled later does not count as waiting any more."""
    timer = heapq.heappop(scheduled)
    timer._scheduled = False  # type: ignore[attr-defined]  # asyncio's own, which typeshed leaves out
    return timer
