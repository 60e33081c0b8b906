"""Tasks that wait in line for something to change: what the queues of both buses are built on."""

import asyncio
import contextlib
from collections import deque


class WaitQueue:
    """First come, first woken. Being woken means "look again", so that a cancelled task takes nothing away with it."""

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
        """Wake everybody who waits now."""
        for _ in range(len(self._waiters)):
            self.wake()
