"""Publisher -> broker's client: how much may be on its way at once, by messages and by bytes."""

import asyncio
from collections import deque

from tg_schema.errors import TgError


class SendWindow:
    """Bounds what is in flight on one topic; who finds it full waits in line. Belongs to one event loop."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0

    @property
    def full(self) -> bool:
        """Whether `enter` must wait; a window that is empty takes a message of any size."""
        return self.in_flight > 0 and (self._messages <= 0 or self._bytes <= 0)

    @property
    def idle(self) -> bool:
        """Nothing is in flight, and nobody waits."""
        return self.in_flight == 0 and not self._waiters

    def enter(self, size: int) -> None:
        """Count a message in."""
        self.in_flight += 1
        self._messages -= 1
        self._bytes -= size

    def leave(self, size: int) -> None:
        """Count a message out, and let the next one try."""
        self.in_flight -= 1
        self._messages += 1
        self._bytes += size
        self._wake()

    async def room(self) -> None:
        """Return when there is room; a waiter that is cancelled lets the next one try."""
        while self.full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.cancelled():
                    self._waiters.remove(waiter)
                else:
                    self._wake()
                raise
        self._wake()

    def close(self, error: TgError) -> None:
        """Fail everybody who waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        while self._waiters and not self.full:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
