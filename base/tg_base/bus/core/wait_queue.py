"""Waiting tasks -> one of them: a first-in, first-out queue of tasks, used by the queues of both buses."""

import asyncio
import contextlib
from collections import deque


class WaitQueue:
    """Wakes tasks in the order in which they came. A woken task looks again, so that a cancelled one loses nothing."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self) -> None:
        """Return when woken; a task that is cancelled after that wakes the next one instead."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            else:
                # Woken and cancelled at the same moment: wake another task in its place.
                self.wake()
            raise

    def wake(self) -> None:
        """Wake the first one that is still waiting."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all tasks that wait now."""
        for _ in range(len(self._waiters)):
            self.wake()
