"""Key -> its lists, each in the order of time: one log for each period, so that none grows for ever."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tg_base.bus import Entry
from tg_gateway.dialects import name_answer
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.written import Written

FOLLOW_SECONDS: Final = 600.0
"""A follower has to come again after so long, so that its key is checked again."""
_NAME, _EXPIRES, _SIZE = "name", "expires", "size"
"""Properties of an entry. The last entry of a name counts; if it has expired, the name is off the list."""


@dataclass(frozen=True, slots=True)
class KeyList:
    """A list of one key. Nothing stays on it for longer than a period, so two logs have all of it.

    Attributes:
        logs: those of what is listed.
        owner: as `JobLogs.owner`.
        kind: tells lists of one key apart.
        period: in seconds.
    """

    logs: JobLogs
    owner: str
    kind: str
    period: float

    def name(self, number: int) -> str:
        """The name of the log of a period."""
        return name_answer("list-", self.owner, f"{self.kind} {number}")

    @property
    def _current(self) -> int:
        return int(self.logs.clock() / self.period)

    @property
    def size(self) -> int:
        """Bytes that this process has listed in the current period."""
        return self.logs.written.size_of(self.name(self._current))

    async def add(self, name: str, body: bytes, expires: float, size: int = 0) -> None:
        """List something, or change what is listed; with `expires` 0 take it off. Raises BusError."""
        await self._append(self._current, body, {_NAME: name, _EXPIRES: str(expires), _SIZE: str(size)})

    async def _append(self, number: int, body: bytes, known: Mapping[str, str]) -> None:
        written = self.logs.written
        await self.logs.bus.append(self.logs.topic(own := self.name(number)), body, known)
        # It is erased when all that it has may be forgotten.
        size = written.size_of(own) + len(body)
        written.add(own, Written(self.owner, size, (number + 2) * self.period, waits=True))

    async def read(self) -> Sequence[Entry]:
        """The entries of all that is listed. Raises BusError."""
        last = self._current
        return [*await self._read(last - 1), *await self._read(last)]

    async def _read(self, number: int) -> Sequence[Entry]:
        return await self.logs.bus.read(self.logs.topic(self.name(number)))

    async def follow(self) -> AsyncGenerator[Entry | None, None]:
        """The entries of all that is listed, then new ones, until the period ends, for `FOLLOW_SECONDS` at most.

        None, which comes at least once, says that there is no further entry at the moment. Raises BusError.
        """
        last, now = self._current, self.logs.clock()
        end = min((last + 1) * self.period, now + FOLLOW_SECONDS)
        before, entries = await self._read(last - 1), await self._read(last)
        if not entries:
            # A log can be followed only from an entry on. This one lists nothing.
            await self._append(last, b"", {_NAME: "", _EXPIRES: "0", _SIZE: "0"})
            entries = await self._read(last)
        for entry in (*before, *entries, None):
            yield entry
        async with aclosing(self.logs.watch(self.name(last), entries[-1].position)) as later:
            async for later_entry in later:
                yield later_entry
                if self.logs.clock() >= end:
                    return


def find_listed(entries: Sequence[Entry], now: float) -> dict[str, tuple[bytes, int]]:
    """What is listed, by its names: the body and the size of each."""
    listed = dict[str, tuple[bytes, int]]()
    for body, known, _ in entries:
        listed[known[_NAME]] = body, int(known[_SIZE])
        if float(known[_EXPIRES]) <= now:
            del listed[known[_NAME]]
    return listed
