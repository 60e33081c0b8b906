"""Door or pool provider -> flow control: finds a server for each request, and waits while all are busy."""

import asyncio
from collections.abc import Callable, Iterator

from tg_picker.core import FlowControl, Pick, QueueLimits, Rejection, Scheduler, Waiting

LOOK_SECONDS = 0.25
"""Seconds between checks for capacity while requests wait and no report comes, because reports become stale."""


class Dispatcher(FlowControl):
    """Flow control with a clock, whose decisions can be awaited.

    It belongs to one event loop, and has no task of its own: each request waits in its caller's task. Call `wait` after
    `submit` without an await in between.

    Waiting requests are woken when a request ends, when a report arrives, and when the pool changes.

    Args:
        scheduler: the scheduler that picks; the dispatcher becomes its follower.
        limits: how many requests may wait in each pool.
        clock: the scheduler's clock, in seconds.
    """

    def __init__(self, scheduler: Scheduler, limits: QueueLimits, clock: Callable[[], float]) -> None:
        super().__init__(scheduler, limits)
        self.on_capacity = self._wake
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._serve_at = 0.0

    @property
    def queues(self) -> Iterator[tuple[str, int, int, float, int]]:
        """For each pool and priority: how many requests wait, how long the first has waited, and their bytes."""
        now = self._clock()
        for pool, lengths in self.waiting.items():
            for priority, requests in lengths.items():
                oldest_at, size = self.measure(pool, priority)
                yield pool, priority, requests, now - oldest_at, size

    async def wait(self, pool: str, waiting: Waiting) -> Pick | Rejection:
        """Wait for the decision about a request. If this is cancelled, nothing is left behind."""
        if waiting.made is not None:
            return waiting.made
        decided: asyncio.Future[Pick | Rejection] = asyncio.get_running_loop().create_future()

        def settle(made: Pick | Rejection) -> None:
            # If its waiter has left, the future is done already.
            if not decided.done():
                decided.set_result(made)

        waiting.on_made = settle
        self._arm_for_wait()
        try:
            return await decided
        except asyncio.CancelledError:
            # The decision may have come in the same turn of the loop: then release its server, which will not be used.
            self.leave(pool, waiting, self._clock())
            self._arm_for_wait()
            raise

    def _wake(self) -> None:
        # Run once per turn of the loop, however many requests end in that turn.
        self._arm(self._clock())

    def _serve_now(self) -> None:
        self._timer = None
        self.serve(self._clock())
        self._arm_for_wait()

    def _arm_for_wait(self) -> None:
        """Set a timer for the time when a waiting request expires, or when the servers' reports may be stale."""
        expiry = self.next_expiry
        if expiry is not None:
            self._arm(min(expiry, self._clock() + LOOK_SECONDS))
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            if self._serve_at <= at:
                return
            self._timer.cancel()
        self._serve_at = at
        self._timer = asyncio.get_running_loop().call_later(max(at - self._clock(), 0.0), self._serve_now)
