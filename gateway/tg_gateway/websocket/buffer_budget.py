"""Bytes that wait for a client -> a bound for its whole socket: who holds most of them ends first."""

from typing import Protocol


class Holder(Protocol):
    """One stream of a socket."""

    __slots__ = ()

    def shed(self) -> None:
        """End now, and let go of what waits. Called once."""


class BufferBudget:
    """What the streams of one socket hold together, while its client does not read.

    Args:
        limit: bytes.

    Attributes:
        total: bytes held now; never more than the limit after a call.
    """

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._limit = limit
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """Note a stream's bytes. Ends the streams that hold most, until the rest is within the limit."""
        self.total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.total > self._limit:
            largest = max(self._held, key=lambda holder: self._held[holder])
            # Before it is told: its end lets go of what it holds, which must not be taken off twice.
            self.total -= self._held.pop(largest)
            largest.shed()
