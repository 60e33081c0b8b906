"""An event loop whose clock advances only when it is idle: waits take no real time, however slow the machine is.

For tests of one process: what comes through one of its sockets, or from an executor, takes no time by this clock. What
other threads do is not waited for.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import wraps
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

from typing_extensions import override

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
GRACE_SECONDS = 0.02
"""Real time that the system gets to bring bytes from one socket of the process to another."""


class _Selector(selectors.BaseSelector):
    """Selects from real sockets; where a loop would wait for its next timer, the clock advances to it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0
        self.threads = 0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # A thread's work takes no time by this clock; the thread wakes the loop when it is done.
        if self.threads and timeout:
            return self._real.select(None)
        # One socket is the loop's own, for wake-ups.
        grace = GRACE_SECONDS if timeout and len(self._real.get_map()) > 1 else 0
        ready = self._real.select(None if timeout is None else grace)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    @override
    def close(self) -> None:
        self._real.close()

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for timers without waiting."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        return self._virtual.now

    def suspend(self, seconds: float) -> None:
        """Time passes, and nothing of the process runs meanwhile, as between SIGSTOP and SIGCONT."""
        self._virtual.now += seconds

    @override
    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._end_thread)
        return future

    @override
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Since Python 3.12 it has a deadline, which this clock would reach at once.
        await super().shutdown_default_executor()

    def _end_thread(self, _: object) -> None:
        self._virtual.threads -= 1


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Decorate an async test: it runs on a loop of its own, whose clock starts at 0."""

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        async def body() -> None:
            await test(*args, **options)

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(body())

    return run
