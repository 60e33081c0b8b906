"""Request queue -> its orders: the least of many items, any of which may be removed."""

from bisect import bisect_left, insort
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class PriorityQueue(Generic[Item]):
    """Items ordered by their keys. Items with equal keys are in the order in which they were added.

    Each change moves all later items. That is meant for up to ten thousand items, and takes about a microsecond each;
    the default of `QueueLimits.max_waiting` is a thousand.
    """

    def __init__(self) -> None:
        self._sorted: list[tuple[float, int, Item]] = []
        self._entries: dict[Item, tuple[float, int, Item]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, key: float, item: Item) -> None:
        """Add an item that is not in the queue."""
        entry = self._entries[item] = key, next(self._numbers), item
        insort(self._sorted, entry)

    def peek(self) -> Item:
        """The item with the least key. The queue must not be empty."""
        return self._sorted[0][2]

    def least_key(self) -> float:
        """The least key. The queue must not be empty."""
        return self._sorted[0][0]

    def pop(self) -> Item:
        """Remove and return the item with the least key. The queue must not be empty."""
        item = self.peek()
        self.discard(item)
        return item

    def discard(self, item: Item) -> None:
        """Remove an item, if it is in the queue."""
        entry = self._entries.pop(item, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, entry)]
