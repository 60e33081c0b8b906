"""Inbox -> streams: puts one link's messages in order, drops repeated ones and detects gaps."""

from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_AHEAD_MESSAGES = 1024
"""How far ahead of the expected message one is buffered; a sender's window is smaller."""


T = TypeVar("T")


class ReorderBuffer(Generic[T]):
    """The receiving end of a link, for messages of any kind. It has no clock and no bus.

    Attributes:
        expected: the number of the next message; everything below was delivered.
    """

    def __init__(self) -> None:
        self.expected = 0
        self._early: dict[int, T] = {}
        self._known = -1

    @property
    def gap(self) -> bool:
        """Whether a message is missing that is known to have been sent."""
        return self._known >= self.expected

    def on_announced(self, sent: int) -> None:
        """The sender has announced that it sent everything up to this number."""
        self._known = max(self._known, sent)

    def take(self, seq: int, message: T) -> Iterator[T]:
        """Add a message; yield those that are due, in order. A repeated message yields nothing."""
        self._known = max(self._known, seq)
        if self.expected <= seq <= self.expected + MAX_AHEAD_MESSAGES:
            self._early[seq] = message
        while self.expected in self._early:
            # Before the yield: a message whose handling fails counts as delivered, or it would come for ever.
            self.expected += 1
            yield self._early.pop(self.expected - 1)
