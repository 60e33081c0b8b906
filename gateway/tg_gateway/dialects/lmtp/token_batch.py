"""Items of all streams of a socket -> TOKEN messages: those that are ready together are one."""

from collections.abc import Callable, Sequence

import msgspec

from tg_gateway.dialects.lmtp.messages import encode_message

MAX_ITEMS = 256
"""Of one message, about; it leaves then without waiting for the others."""


class TokenBatch:
    """What has come in this turn of the event loop. One message for each turn costs both ends less than one a stream.

    Args:
        say: sends a message.
        later: calls back in the next turn of the event loop.
    """

    def __init__(self, say: Callable[[bytes], None], later: Callable[[Callable[[], None]], object]) -> None:
        self._say = say
        self._later = later
        self._items: list[msgspec.Struct] = []

    def add(self, items: Sequence[msgspec.Struct]) -> None:
        """Send these, with what else comes in this turn."""
        if not items:
            return
        if not self._items:
            self._later(self.flush)
        self._items += items
        if len(self._items) >= MAX_ITEMS:
            self.flush()

    def take(self) -> bytes:
        """All that waits, to be sent by the caller."""
        items, self._items = self._items, []
        return encode_message(b"TOKEN", items) if items else b""

    def flush(self) -> None:
        """Send all that waits."""
        if message := self.take():
            self._say(message)
