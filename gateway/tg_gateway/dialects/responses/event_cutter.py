"""Pieces of a stream of events, cut anywhere -> whole events from a number on."""

from typing import Final

_END: Final = b"\n\n"


class EventCutter:
    """Leaves out the events up to a number.

    Args:
        after: the number of the last event that is left out; -1 leaves out none.

    Attributes:
        number: that of the next event.
    """

    def __init__(self, after: int) -> None:
        self.number = 0
        self._after = after
        self._rest = b""

    @property
    def last(self) -> int:
        """The number of the last event that its reader has."""
        return max(self._after, self.number - 1)

    def drop_rest(self) -> None:
        """Forget the event that is not whole: nothing more comes of it."""
        self._rest = b""

    def add(self, piece: bytes) -> bytes:
        """The events that are whole now, and not left out."""
        whole, end, self._rest = (self._rest + piece).rpartition(_END)
        if not end:
            return b""
        events = whole.split(_END)
        skipped = max(0, self._after + 1 - self.number)
        self.number += len(events)
        return b"".join([event + _END for event in events[skipped:]])
