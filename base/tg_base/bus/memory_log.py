"""Appender -> reader inside one process: a log of the memory bus."""

from collections.abc import AsyncIterator, Mapping

from typing_extensions import override

from tg_base.bus.core import Entry, WaitQueue
from tg_schema.errors import BadRequest


class MemoryLog:
    """The entries of one log, from its first to its erasure.

    Args:
        first: the number of its first entry, above those of an erased log of the same name.
    """

    def __init__(self, first: int) -> None:
        self.entries: list[Entry] = []
        self.waiting = WaitQueue()
        self.over = False
        self._first = first

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._first + len(self.entries)

    def append(self, body: bytes, properties: Mapping[str, str]) -> str:
        """Append, wake the followers, and return the entry's position."""
        position = str(self.end)
        self.entries.append(Entry(body, dict(properties), position))
        self.waiting.wake_all()
        return position

    def follow(self, after: str) -> AsyncIterator[Entry]:
        """The entries after this position, including later ones.

        Raises:
            BadRequest: `after` is not a position.
        """
        if not after.isdecimal():
            raise BadRequest("not a position: give the position of an entry")
        return _LogReader(self, int(after) + 1 - self._first)

    def close(self) -> None:
        """End the iteration of all followers."""
        self.over = True
        self.waiting.wake_all()


class _LogReader(AsyncIterator[Entry]):
    """An iterator, because a cancelled wait would end a generator."""

    def __init__(self, log: MemoryLog, index: int) -> None:
        self._log = log
        self._index = index

    @override
    async def __anext__(self) -> Entry:
        log = self._log
        if self._index < 0:
            # The position belongs to an erased log.
            raise StopAsyncIteration
        while not log.over and self._index >= len(log.entries):
            await log.waiting.wait()
        if log.over:
            raise StopAsyncIteration
        self._index += 1
        return log.entries[self._index - 1]
