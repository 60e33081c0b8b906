"""Answer store -> the answers that one gateway has written, and which of them make room for the next."""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from tg_base.bus import Bus
from tg_gateway.jobs.log import JobLog
from tg_schema.errors import RateLimited
from tg_schema.topics import Topics

MAX_ERASED_AT_ONCE: Final = 4
"""How many answers are erased before the next is stored: enough to keep ahead, without a noticeable pause."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""Seconds before an answer is looked at again that was still made when its time was over."""


@dataclass(frozen=True, slots=True)
class Written:
    """One answer.

    Attributes:
        key: its owner.
        size: bytes of its log.
        expires: until when it is kept, by the wall clock.
        waits: whether it must not make room for others, since it waits for capacity, or is part of a list or batch.
        claim: the claim of its head, if the client chose its name: an end may free the name for another gateway.
        apart: whether a process makes it apart, so that only its log tells whether it has ended.
    """

    key: str
    size: int
    expires: float
    waits: bool = False
    claim: str = ""
    apart: bool = False


class WrittenLogs:
    """Counts answers by name and key, in the order of writing. One that has waited moves to the end.

    Args:
        bus: has their logs.
        topics: the logs' names.
        key_answers: the most of one key; beyond that the oldest are erased.
        key_bytes: the same in bytes.
        all_bytes: the same in bytes, of all keys.
    """

    def __init__(self, bus: Bus, topics: Topics, key_answers: int, key_bytes: int, all_bytes: int) -> None:
        self._bus = bus
        self._topics = topics
        self._key_answers = key_answers
        self._key_bytes = key_bytes
        self._all_bytes = all_bytes
        self._bytes = 0
        self._written: dict[str, Written] = {}
        self._names = defaultdict[str, dict[str, None]](dict)
        # Clients choose how long, so the order of writing is not that of expiry.
        self._expiries: list[tuple[float, str]] = []

    def add(self, name: str, written: Written) -> None:
        """Count an answer; it replaces an earlier one of its name."""
        # The names are in the order of writing.
        self.discard(name)
        self._written[name] = written
        insort(self._expiries, (written.expires, name))
        self._bytes += written.size
        self._names[written.key][name] = None

    def discard(self, name: str) -> None:
        """Stop counting an answer that was erased."""
        if (written := self._written.pop(name, None)) is not None:
            self._bytes -= written.size
            del self._expiries[bisect_left(self._expiries, (written.expires, name))]
            del self._names[written.key][name]

    def measure(self, name: str, size: int) -> None:
        """Set the size of the log of an answer, in bytes. Another process may have written to it."""
        if (written := self._written.get(name)) is not None:
            self._written[name] = replace(written, size=size)
            self._bytes += size - written.size

    def size_of(self, name: str) -> int:
        """Bytes of a log that this process has written; 0 = it has not."""
        written = self._written.get(name)
        return 0 if written is None else written.size

    def check_room(self, size: int) -> None:
        """Check that there is space for another `size` bytes without erasing a log. Raises RateLimited."""
        if self._bytes + size > self._all_bytes:
            raise RateLimited("this gateway keeps as much as it may: delete something, or wait until it expires")

    def mark(self, name: str, *, waits: bool) -> None:
        """Note whether an answer waits.

        A change moves it to the end of the order in which answers are erased to make room.
        """
        written = self._written.get(name)
        if written is not None and written.waits != waits:
            self.add(name, replace(written, waits=waits))

    async def make_room(self, key: str, now: float) -> None:
        """Erase a few that have expired, or are the oldest of a key that is over its bounds; none that is being made.

        Raises BusError.
        """
        for name in self._choose_erased(key, now):
            written = self._written.get(name)
            if written is None or not written.apart or await self._is_over(name, written, now):
                await self.erase(name)

    async def _is_over(self, name: str, written: Written, now: float) -> bool:
        """Whether an answer may be erased; otherwise others are chosen before it."""
        log = JobLog(await self._bus.read(self._topics.kept(name)))
        if log.claim != written.claim:
            # Another gateway has replaced this response, and will erase the new one.
            self.discard(name)
            return False
        running = log.outcome == "running" and log.expires > now and not log.is_expired(now)
        if running:
            self.add(name, replace(written, expires=max(written.expires, now + LOOK_AGAIN_SECONDS)))
        return not running

    async def erase(self, name: str) -> None:
        """Erase one, of any gateway. Raises BusError."""
        self.discard(name)
        await self._bus.erase(self._topics.kept(name))

    def _choose_erased(self, key: str, now: float) -> list[str]:
        """Answers that have expired, the oldest of a key that is over its bounds, and the oldest of all."""
        chosen = [name for expires, name in self._expiries[:MAX_ERASED_AT_ONCE] if expires <= now]
        # A waiting response is not erased for others: waiting responses have a bound of their own.
        own = {name: each.size for name in self._names[key] if not (each := self._written[name]).waits}
        count, size = len(own), sum(own.values())
        for name, each_size in own.items():
            if (count <= self._key_answers and size <= self._key_bytes) or len(chosen) == MAX_ERASED_AT_ONCE:
                break
            count, size = count - 1, size - each_size
            if name not in chosen:
                chosen.append(name)
        excess = self._bytes - self._all_bytes - sum(self._written[name].size for name in chosen)
        for name, written in self._written.items():
            if excess <= 0 or len(chosen) == MAX_ERASED_AT_ONCE:
                break
            if not written.waits and name not in chosen:
                chosen.append(name)
                excess -= written.size
        return chosen
