"""Work queues -> slots: bounds the requests that a processor runs concurrently; its queues take turns."""

import asyncio

TURN_SECONDS = 0.05
"""How long a free slot is reserved for a queue whose request was returned, before another queue may use it."""
HOLD_SECONDS = 0.1
"""How long a request waits if the last slot was just taken; after that it is returned for another processor."""


class Slots:
    """The slots of one processor. A slot is taken for a request, never for a queue that has none.

    Args:
        capacity: the number of slots.

    Attributes:
        taken: the number of slots in use.
    """

    def __init__(self, capacity: int) -> None:
        self.taken = 0
        self._free = asyncio.Semaphore(capacity)
        self._owed: dict[object, None] = {}
        self._paid = asyncio.Event()

    async def wait(self, queue: object) -> None:
        """Return when a slot is free and it is this queue's turn to ask for a request. Takes no slot."""
        # Freed again at once: a slot held here, while the queue may stay empty for hours, would be lost to the others.
        async with self._free:
            pass
        # A queue whose request was just returned goes first; otherwise a busier queue could always be quicker.
        if self._owed and queue not in self._owed:
            self._paid.clear()
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await self._paid.wait()
            except TimeoutError:
                self._owed.clear()

    def slot(self, queue: object) -> "Slot":
        """A slot for a request of this queue, not taken yet."""
        return Slot(self, queue)

    async def take(self, queue: object, seconds: float) -> bool:
        """Take a slot for a request of this queue; False if none becomes free within `seconds`.

        After a False, the queue is the next to be served.
        """
        try:
            # A timeout for each request would be costly, and nearly all find a free slot.
            if self._free.locked():
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            else:
                await self._free.acquire()
        except TimeoutError:
            self._owed[queue] = None
            return False
        self.taken += 1
        # The values are None, so that anything else says that this queue was owed nothing.
        if self._owed.pop(queue, self) is None:
            self._paid.set()
        return True

    def release(self) -> None:
        """Free a slot."""
        self.taken -= 1
        self._free.release()


class Slot:
    """The slot of one request. Enter it, take it when it is needed; leaving frees it."""

    def __init__(self, slots: Slots, queue: object) -> None:
        self._slots = slots
        self._queue = queue
        self._taken = False

    async def take(self) -> bool:
        """Take the slot, unless it is taken already; False if none becomes free within `HOLD_SECONDS`."""
        self._taken = self._taken or await self._slots.take(self._queue, HOLD_SECONDS)
        return self._taken

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if self._taken:
            self._taken = False
            self._slots.release()
