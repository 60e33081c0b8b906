"""The events of a kept answer -> those from a number on."""

from typing_extensions import override

from tg_gateway.dialects.framing import END_OF_EVENT


class EventCutter:
    """Leaves out the events up to a number.

    Args:
        after: the number of the last event that is left out; -1 leaves out none.
        shows: whether each event says its number, as its `id:`.

    Attributes:
        number: the number of the next event.
        after: as given.
    """

    def __init__(self, after: int, *, shows: bool = False) -> None:
        self.number = 0
        self.after = after
        self._shows = shows

    @property
    def last(self) -> int:
        """The number of the last event that its reader has."""
        return max(self.after, self.number - 1)

    def add(self, events: bytes) -> bytes:
        """The part of these next, whole events that is not left out."""
        *found, _ = events.split(END_OF_EVENT)
        first, self.number = self.number, self.number + len(found)
        kept = [(number, event) for number, event in enumerate(found, first) if number > self.after]
        if self._shows:
            return b"".join([b"id: %d\n%b%b" % (number, event, END_OF_EVENT) for number, event in kept])
        return b"".join([event + END_OF_EVENT for _, event in kept])


class RecordCutter(EventCutter):
    """Cuts events that are not server-sent: all that is written of one record counts as one event."""

    @override
    def add(self, events: bytes) -> bytes:
        self.number += 1
        return events if self.number - 1 > self.after else b""
