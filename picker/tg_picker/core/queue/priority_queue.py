"""Request queue -> its orders: the least item of many, of which any may be taken out."""

from bisect import bisect_left, insort
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class PriorityQueue(Generic[Item]):
    """Items by their keys, equal keys in the order in which they came.

    Each change moves the items behind it. That is meant for up to ten thousand items, about a microsecond each;
    `QueueLimits.max_waiting` is a thousand as shipped.
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
        """Take out the item with the least key. The queue must not be empty."""
        item = self.peek()
        self.discard(item)
        return item

    def discard(self, item: Item) -> None:
        """Take out an item, if it is there."""
        entry = self._entries.pop(item, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, entry)]
