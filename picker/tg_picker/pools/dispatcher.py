"""Door or pool provider -> flow control: a server for each request, waited for while all are busy."""

import asyncio
from collections.abc import Callable, Iterator

from tg_picker.core import FlowControl, Pick, QueueLimits, Rejection, Scheduler, Waiting

LOOK_SECONDS = 0.25
"""How often to check for capacity while requests wait and no report comes, since reports grow old."""


class Dispatcher(FlowControl):
    """Flow control by a clock, whose requests can be waited for.

    It belongs to one event loop, and has no task of its own: each request waits in its caller's task, and `wait` is
    called after `submit` without a turn of the loop in between.

    Waiting requests are woken by the end of a request, by a report, and by a change of the pool.

    Args:
        scheduler: picks; from now on the dispatcher follows it.
        limits: how much may wait in each pool.
        clock: the scheduler's, in seconds.
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
        """The decision about a request, once there is one. Cancelled, it leaves nothing behind."""
        if waiting.made is not None:
            return waiting.made
        decided: asyncio.Future[Pick | Rejection] = asyncio.get_running_loop().create_future()

        def settle(made: Pick | Rejection) -> None:
            # A future that its waiter has left is done already.
            if not decided.done():
                decided.set_result(made)

        waiting.on_made = settle
        self._arm_for_wait()
        try:
            return await decided
        except asyncio.CancelledError:
            # The decision may have come in the same turn of the loop: release its server, which will not be asked.
            self.leave(pool, waiting, self._clock())
            self._arm_for_wait()
            raise

    def _wake(self) -> None:
        # Run once for each turn of the loop, however many requests end in that turn.
        self._arm(self._clock())

    def _serve_now(self) -> None:
        self._timer = None
        self.serve(self._clock())
        self._arm_for_wait()

    def _arm_for_wait(self) -> None:
        """Check again when a request has waited too long, or the reports of the servers may be old."""
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
