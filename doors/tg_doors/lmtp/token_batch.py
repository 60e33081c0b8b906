"""Items of all streams of a socket -> TOKEN messages: those that are ready together are one."""

from collections.abc import Callable, Sequence

from tg_doors.lmtp.messages import encode_message

MAX_ITEMS = 256
"""Approximate maximum of items in one message, which is then sent without waiting for more."""
MAX_ENTRIES = 16 * 1024
"""The same, of items and alternatives together: LMQL's clients close a socket with a message of more than 4 MiB."""


class TokenBatch:
    """The items of this turn of the event loop. One message per turn costs both ends less than one per stream.

    Args:
        send: sends a message.
        later: calls back in the next turn of the event loop.
    """

    def __init__(self, send: Callable[[bytes], None], later: Callable[[Callable[[], None]], object]) -> None:
        self._send = send
        self._later = later
        self._items: list[object] = []
        self._entries = 0

    def add(self, items: Sequence[object], width: int) -> None:
        """Send these, with what else comes in this turn. Each counts as `width` entries."""
        if not items:
            return
        # The first item schedules the flush in the next turn; the others only join.
        if not self._items:
            self._later(self.flush)
        self._items += items
        self._entries += len(items) * width
        if len(self._items) >= MAX_ITEMS or self._entries >= MAX_ENTRIES:
            self.flush()

    def take(self) -> bytes:
        """All that waits, to be sent by the caller."""
        items, self._items, self._entries = self._items, [], 0
        return encode_message(b"TOKEN", items) if items else b""

    def flush(self) -> None:
        """Send all that waits."""
        if message := self.take():
            self._send(message)
