"""Log -> its entries as they come; whether its writer has fallen silent, and who follows. No clocks are compared."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tg_base.bus import Bus, Entry
from tg_schema.errors import RateLimited

MAX_SEEN_LOGS: Final = 10_000


async def watch(bus: Bus, topic: str, position: str, silence: float) -> AsyncGenerator[Entry | None, None]:
    """The entries behind a position, until the log is erased.

    None in place of an entry says that no entry has come for `silence` seconds.

    Raises:
        BusError: the bus did not answer, so there may be more entries.
    """
    while True:
        async with bus.follow(topic, position) as entries:
            try:
                while (entry := await _next_within(entries, silence)) is not None:
                    position = entry.position
                    yield entry
            except StopAsyncIteration:
                return
        # Our own connection may be the silent one: open a new reader to find out.
        known = await bus.read(topic)
        if not known:
            return
        if known[-1].position == position:
            yield None


async def _next_within(entries: AsyncIterator[Entry], seconds: float) -> Entry | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(entries)
    except TimeoutError:
        return None


class SeenLogs:
    """The last entries seen in logs that are read now and then.

    Args:
        silence: seconds without a new entry after which a log's writer counts as dead.
        time: a monotonic clock, in seconds.
    """

    def __init__(self, silence: float, time: Callable[[], float]) -> None:
        self._silence = silence
        self._time = time
        self._seen: dict[str, tuple[str, float]] = {}

    def note_silence(self, name: str, position: str) -> None:
        """Note that a continuous reader has seen no entry after this one for `silence` seconds."""
        self._note(name, position, self._time() - self._silence)

    def is_silent(self, name: str, position: str) -> bool:
        """Whether this entry, the last one now, was also the last one `silence` seconds ago."""
        now = self._time()
        last, since = self._seen.get(name, ("", now))
        if last != position:
            since = now
        self._note(name, position, since)
        return now - since >= self._silence

    def _note(self, name: str, position: str, since: float) -> None:
        self._seen.pop(name, None)
        self._seen[name] = position, since
        if len(self._seen) > MAX_SEEN_LOGS:
            del self._seen[next(iter(self._seen))]


class FollowerCount:
    """Limits the clients that read a kept response at the same time.

    Args:
        most: the most clients of one key.
        most_in_all: the most clients of all keys.
    """

    def __init__(self, most: int, most_in_all: int) -> None:
        self._most = most
        self._most_in_all = most_in_all
        self._following: Counter[str] = Counter()

    @contextmanager
    def enter(self, key: str) -> Iterator[None]:
        """Count one client of a key while the block runs.

        Raises:
            RateLimited: too many clients read.
        """
        if self._following[key] >= self._most or self._following.total() >= self._most_in_all:
            raise RateLimited("too many clients follow responses of this gateway; ask again later", retry_after=1.0)
        self._following[key] += 1
        try:
            yield
        finally:
            # In place of `[key] -= 1`: a key that has none any more is forgotten.
            self._following -= Counter([key])
