"""Answer -> log of the bus -> answer: what dialects keep, each entry bound to the key that asked, in bounded space.

Each answer is a log of its own, named after it, so there is no index that could disagree. Any gateway on the bus reads
it. The bounds of a key are counted by each gateway for what it wrote.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from tg_base.bus import Bus, Entry
from tg_gateway.dialects import MAX_KEPT_BYTES, Keep, KeptAnswers
from tg_schema.errors import NotFound, TooLarge
from tg_schema.topics import Topics

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an answer can be read."""
MAX_KEY_ANSWERS: Final = 1_000
MAX_KEY_BYTES: Final = 64 * 1024 * 1024
"""What one gateway keeps for one key; the oldest answers make room."""
MAX_ERASED_AT_ONCE: Final = 4
"""Answers that are erased before the next is kept: enough to get ahead of what comes, without a pause that is felt."""

_NAME: Final = re.compile(r"[\w-]{1,80}", re.ASCII)
_KEY: Final = "key"
_EXPIRES: Final = "expires"
_NOT_FOUND: Final = "nothing of this name is kept for this key: it never was, it has expired, or it was deleted"


@dataclass(frozen=True, slots=True)
class _Written:
    key: str
    size: int
    expires: float


class AnswerStore:
    """What all keys keep.

    Args:
        bus: has the logs.
        topics: their names.
        clock: wall clock, in seconds.
    """

    def __init__(self, bus: Bus, topics: Topics, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._topics = topics
        self._clock = clock
        self._written: dict[str, _Written] = {}
        self._sizes: dict[str, dict[str, int]] = {}

    def of(self, key: str | None) -> KeptAnswers:
        """What this key keeps; without one, what all without a key share."""
        return _KeyAnswers(self, key or "")

    async def keep(self, key: str | None, keep: Keep) -> None:
        """Return once it can be read, through any gateway.

        Raises:
            TooLarge: it has more than `MAX_KEPT_BYTES`.
            BusError: the bus did not take it.
        """
        body, expires = keep.make(), self._clock() + KEPT_SECONDS
        limit = min(MAX_KEPT_BYTES, self._bus.max_message)
        if len(body) > limit:
            raise TooLarge(f"an answer that is kept has at most {limit} bytes with its input; this one has {len(body)}")
        owner = key or ""
        # Counted first: an append that seems to fail may still arrive.
        self._count_in(keep.name, _Written(owner, len(body), expires))
        for name in self._choose_erased(owner):
            await self._forget(name)
        await self._bus.append(self._topics.kept(keep.name), body, {_KEY: owner, _EXPIRES: str(expires)})

    def _choose_erased(self, owner: str) -> list[str]:
        """Answers that have expired, and the oldest of a key that is over its bounds."""
        now, chosen = self._clock(), list[str]()
        for name, written in self._written.items():
            # They are in the order of writing, which is that of expiry.
            if written.expires > now or len(chosen) == MAX_ERASED_AT_ONCE:
                break
            chosen.append(name)
        own = self._sizes[owner]
        count, size = len(own), sum(own.values())
        for name, each in own.items():
            if (count <= MAX_KEY_ANSWERS and size <= MAX_KEY_BYTES) or len(chosen) == MAX_ERASED_AT_ONCE:
                break
            count, size = count - 1, size - each
            if name not in chosen:
                chosen.append(name)
        return chosen

    def _count_in(self, name: str, written: _Written) -> None:
        self._written[name] = written
        self._sizes.setdefault(written.key, {})[name] = written.size

    def _count_out(self, name: str) -> None:
        if (written := self._written.pop(name, None)) is not None:
            own = self._sizes[written.key]
            del own[name]
            if not own:
                del self._sizes[written.key]

    async def read(self, key: str, name: str) -> bytes:
        """As `KeptAnswers.read`."""
        if not _NAME.fullmatch(name):
            raise NotFound(_NOT_FOUND)
        entries = await self._bus.read(self._topics.kept(name))
        if not entries or entries[0].properties.get(_KEY) != key:
            raise NotFound(_NOT_FOUND)
        # Not `<=`: "nan" reads as a number too.
        if not _read_expiry(entries[0]) > self._clock():
            await self._forget(name)
            raise NotFound(_NOT_FOUND)
        return entries[0].body

    async def erase(self, key: str, name: str) -> None:
        """As `KeptAnswers.erase`."""
        await self.read(key, name)
        await self._forget(name)

    async def _forget(self, name: str) -> None:
        self._count_out(name)
        await self._bus.erase(self._topics.kept(name))


def _read_expiry(entry: Entry) -> float:
    """When an answer expires; long ago where somebody else has written it, without a time."""
    try:
        return float(entry.properties.get(_EXPIRES, ""))
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class _KeyAnswers(KeptAnswers):
    """What one key keeps."""

    store: AnswerStore
    key: str

    @override
    async def read(self, name: str) -> bytes:
        return await self.store.read(self.key, name)

    @override
    async def erase(self, name: str) -> None:
        await self.store.erase(self.key, name)
