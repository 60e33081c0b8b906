"""The events of a response -> those from a number on."""

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

    @property
    def last(self) -> int:
        """The number of the last event that its reader has."""
        return max(self._after, self.number - 1)

    def add(self, events: bytes) -> bytes:
        """Those of the next events, all of them whole, that are not left out."""
        *found, _ = events.split(_END)
        skipped = max(0, self._after + 1 - self.number)
        self.number += len(found)
        return b"".join([event + _END for event in found[skipped:]])
