"""Work queues -> slots: how many requests a processor works on at once, shared by its queues in turn."""

import asyncio

TURN_SECONDS = 0.05
"""How long a free slot waits for a queue whose request had to be given back, before another queue gets it."""
HOLD_SECONDS = 0.1
"""How long a request that finds the last slot just taken waits for one; then another processor may have it."""


class Slots:
    """A slot is taken for a request, never for a queue that has none.

    Args:
        capacity: how many there are.

    Attributes:
        taken: how many are taken now.
    """

    def __init__(self, capacity: int) -> None:
        self.taken = 0
        self._free = asyncio.Semaphore(capacity)
        self._owed: dict[object, None] = {}
        self._paid = asyncio.Event()

    async def wait(self, queue: object) -> None:
        """Return when a slot is free, and it is this queue's turn to ask for a request. Nothing is taken."""
        async with self._free:
            pass
        if self._owed and queue not in self._owed:
            self._paid.clear()
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await self._paid.wait()
            except TimeoutError:
                self._owed.clear()

    def slot(self, queue: object) -> "Slot":
        """One for a request of this queue, not taken yet."""
        return Slot(self, queue)

    async def take(self, queue: object, seconds: float) -> bool:
        """Take a slot for a request of this queue; False where none comes free in that time.

        The queue is then the next to be served.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            self._owed[queue] = None
            return False
        self.taken += 1
        if self._owed.pop(queue, self) is None:
            self._paid.set()
        return True

    def release(self) -> None:
        """Give a slot back."""
        self.taken -= 1
        self._free.release()


class Slot:
    """What one request works in. Enter it, take it when it is needed; leaving gives it back."""

    def __init__(self, slots: Slots, queue: object) -> None:
        self._slots = slots
        self._queue = queue
        self._taken = False

    async def take(self) -> bool:
        """Take it, unless that was done; False where none comes free within `HOLD_SECONDS`."""
        self._taken = self._taken or await self._slots.take(self._queue, HOLD_SECONDS)
        return self._taken

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if self._taken:
            self._taken = False
            self._slots.release()
