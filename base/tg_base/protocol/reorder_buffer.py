"""Inbox -> streams: one link's messages put in order, each once, with every hole noticed."""

from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_AHEAD_MESSAGES = 1024
"""How far ahead of the next message one may be kept; a sender's window is smaller."""


T = TypeVar("T")


class ReorderBuffer(Generic[T]):
    """The receiving end of a link, for messages of any kind: pure, no clock and no bus.

    Attributes:
        expected: the number of the next message; everything below has been handed on.
    """

    def __init__(self) -> None:
        self.expected = 0
        self._early: dict[int, T] = {}
        self._known = -1

    @property
    def gap(self) -> bool:
        """Whether a message is known to exist that has not come."""
        return self._known >= self.expected

    def on_announced(self, sent: int) -> None:
        """The sender says that it has sent up to this number."""
        self._known = max(self._known, sent)

    def take(self, seq: int, message: T) -> Iterator[T]:
        """Give a message in, get those that are due, in order; a repeated one gives nothing."""
        self._known = max(self._known, seq)
        if self.expected <= seq <= self.expected + MAX_AHEAD_MESSAGES:
            self._early[seq] = message
        while self.expected in self._early:
            self.expected += 1
            yield self._early.pop(self.expected - 1)
