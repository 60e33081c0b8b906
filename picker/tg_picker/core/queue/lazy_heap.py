"""Request queue -> its orders: the least item of many, of which any may be taken out."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

MIN_COMPACTED_ENTRIES = 16
"""A heap with fewer entries is not worth a rebuild."""


class LazyHeap(Generic[Item]):
    """Items by their keys, equal keys in the order in which they came. Every call costs O(log n) on average."""

    __slots__ = ("_entries", "_live", "_numbers")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._live: dict[Item, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._live)

    def push(self, key: float, item: Item) -> None:
        """Add an item that is not in the heap."""
        number = next(self._numbers)
        self._live[item] = number
        heappush(self._entries, (key, number, item))

    def peek(self) -> Item:
        """The item with the least key. The heap must not be empty."""
        return self._first()[2]

    def least_key(self) -> float:
        """The least key. The heap must not be empty."""
        return self._first()[0]

    def pop(self) -> Item:
        """Take out the item with the least key. The heap must not be empty."""
        item = self._first()[2]
        heappop(self._entries)
        del self._live[item]
        return item

    def discard(self, item: Item) -> None:
        """Take out an item, if it is there."""
        if self._live.pop(item, None) is None:
            return
        # A dead entry stays until it comes up, unless most are dead: many clients may leave before any is served.
        if len(self._entries) > 2 * len(self._live) + MIN_COMPACTED_ENTRIES:
            self._entries = [entry for entry in self._entries if self._live.get(entry[2]) == entry[1]]
            heapify(self._entries)

    def _first(self) -> tuple[float, int, Item]:
        while self._live.get((entry := self._entries[0])[2]) != entry[1]:
            heappop(self._entries)
        return entry
