"""Foreign threads -> event loop: passes items on in order, with one wake-up of the loop for each batch."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handoff(Generic[T]):
    """`put` from any thread; `arrived` runs in the loop, once for each batch, and takes from `items`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, arrived: Callable[[], None]) -> None:
        self.items: deque[T] = deque()
        self._loop = loop
        self._arrived = arrived
        self._waking = False

    def put(self, item: T) -> None:
        """Append an item, and wake the loop unless a wake-up is pending. Does nothing more if the loop is closed."""
        self.items.append(item)
        if not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return

    def _wake(self) -> None:
        # Before `items` is looked at, so that an item which comes now is either seen or wakes the loop again.
        self._waking = False
        self._arrived()
