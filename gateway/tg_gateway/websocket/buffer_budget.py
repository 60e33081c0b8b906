"""Bytes that wait for a client -> a bound for its whole socket: beyond it, the streams that hold most are ended."""

from typing import Protocol


class Holder(Protocol):
    """One stream of a socket."""

    __slots__ = ()

    def shed(self) -> None:
        """End now, and drop the waiting bytes. Called once."""


class BufferBudget:
    """The bytes that all streams of one socket hold while its client does not read.

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
            # Subtract before calling `shed`, which drops the bytes and would subtract them again.
            self.total -= self._held.pop(largest)
            largest.shed()
