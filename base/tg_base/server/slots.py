"""Work queues -> slots: bounds the requests that a processor runs concurrently; its queues take turns."""

import asyncio
from contextlib import AbstractContextManager
from itertools import takewhile

from typing_extensions import override

from tg_base.runtime import is_set_within

TURN_SECONDS = 0.05
"""How long a free slot is reserved for a queue whose request was returned, before another queue may use it."""
HOLD_SECONDS = 0.1
"""How long a request waits if the last slot was just taken; after that it is returned for another processor."""
RESERVE_SECONDS = 1.0
"""How long a slot is reserved for a request that its requestor must confirm: longer than a round trip to anywhere."""


class Slots:
    """The slots of one processor. A slot is taken for a request, never for a queue that has none.

    Args:
        capacity: the number of slots.

    Attributes:
        taken: the number of slots in use.
    """

    def __init__(self, capacity: int) -> None:
        self.taken = 0
        self._capacity = capacity
        self._free = asyncio.Semaphore(capacity)
        self._reserved: dict[Slot, object] = {}
        self._unreserved = asyncio.Event()
        # Queues whose request was returned, oldest first; the value says whether the others still wait for it.
        self._owed: dict[object, bool] = {}
        self._paid = asyncio.Event()

    async def wait(self, queue: object) -> None:
        """Return when a slot is free, not reserved, and it is this queue's turn to ask for a request. Takes no slot."""
        while True:
            # Free it again at once: held for a queue that may stay empty for hours, it would be lost to the others.
            async with self._free:
                pass
            if self.taken + len(self._reserved) < self._capacity:
                break
            self._unreserved.clear()
            await self._unreserved.wait()
        # A queue whose request was just returned goes first; otherwise a busier queue could always be quicker.
        if queue not in self._owed and any(self._owed.values()) and not await self._has_passed():
            self._owed = dict.fromkeys(self._owed, False)

    async def _has_passed(self) -> bool:
        """Wait until a queue that is owed a slot has got it; False if it has not within `TURN_SECONDS`."""
        self._paid.clear()
        return await is_set_within(self._paid, TURN_SECONDS)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free that is neither reserved nor owed to a queue."""
        return self.taken + len(self._reserved) < self._capacity and not any(self._owed.values())

    async def take(self, queue: object, seconds: float) -> bool:
        """Take a slot for a request of this queue; False if none becomes free within `seconds`.

        After a False, the queue is the next to be served.
        """
        if self._reserved and self._is_before(queue):
            await self._has_passed()
        try:
            # A timeout for each request would be costly, and nearly all find a free slot.
            if self._free.locked():
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            else:
                await self._free.acquire()
        except TimeoutError:
            self._owed[queue] = True
            return False
        self.taken += 1
        if self._owed.pop(queue, None) is not None:
            self._paid.set()
        return True

    def _is_before(self, queue: object) -> bool:
        """Whether a queue that was owed a slot earlier than this one has a request that is being confirmed."""
        earlier = takewhile(lambda owed: owed != queue, self._owed)
        scarce = len(self._reserved) > self._capacity - self.taken
        return scarce and any(owed in self._reserved.values() for owed in earlier)

    def release(self) -> None:
        """Free a slot."""
        self.taken -= 1
        self._free.release()
        self._unreserved.set()

    def reserve(self, slot: "Slot", queue: object) -> None:
        """Let `wait` count this slot as taken, although any request may still take it."""
        self._reserved[slot] = queue

    def unreserve(self, slot: "Slot") -> None:
        """Reserve nothing for this slot any more."""
        if self._reserved.pop(slot, None) is not None:
            self._unreserved.set()


class Slot(AbstractContextManager["Slot"]):
    """The slot of one request. Enter it, take it when it is needed; leaving frees it.

    Args:
        slots: the slots of the processor.
        queue: the request's.

    Attributes:
        taken: whether it is taken.
    """

    __slots__ = ("_lapse", "_queue", "_slots", "taken")

    def __init__(self, slots: Slots, queue: object) -> None:
        self._slots = slots
        self._queue = queue
        self.taken = False
        self._lapse: asyncio.TimerHandle | None = None

    def reserve(self) -> None:
        """Ask for no other request in its place until it is taken, and at most for `RESERVE_SECONDS`."""
        self._slots.reserve(self, self._queue)
        self._lapse = asyncio.get_running_loop().call_later(RESERVE_SECONDS, self._slots.unreserve, self)

    async def take(self) -> bool:
        """Take the slot, unless it is taken already; False if none becomes free within `HOLD_SECONDS`."""
        self.taken = self.taken or await self._slots.take(self._queue, HOLD_SECONDS)
        if self._lapse is not None:
            self._unreserve(self._lapse)
        return self.taken

    def _unreserve(self, lapse: asyncio.TimerHandle) -> None:
        lapse.cancel()
        self._lapse = None
        self._slots.unreserve(self)

    @override
    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if self._lapse is not None:
            self._unreserve(self._lapse)
        if self.taken:
            self.taken = False
            self._slots.release()
