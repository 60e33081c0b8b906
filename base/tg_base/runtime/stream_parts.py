"""Timers and short queues of thousands of streams."""

from typing import Final, TypeVar

TIMER_SECONDS: Final = 0.001
"""The resolution of a loop's timers. uvloop's may fire half of it too early, so all are set this much later: a callback
that comes too early would re-arm itself over and over until its time."""
Item = TypeVar("Item")


class FewItems(list[Item]):
    """Replaces a deque that seldom has more than one item, in the objects of another library: empty it has 56 bytes."""

    __slots__ = ()

    def popleft(self) -> Item:
        """Remove and return the first item, as a deque does."""
        return self.pop(0)
