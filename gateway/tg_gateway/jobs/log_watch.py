"""Logs that are read -> whether their writers are silent, and how many clients follow. No clocks are compared."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from tg_base.runtime import counted
from tg_schema.errors import RateLimited

MAX_SEEN_LOGS: Final = 10_000


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
    """Limits how many logs are followed at a time: of responses by clients, of batches by this gateway.

    Args:
        most: the most clients of one key.
        most_in_all: the most clients of all keys.
    """

    def __init__(self, most: int, most_in_all: int) -> None:
        self._most = most
        self._most_in_all = most_in_all
        self._following: Counter[str] = Counter()

    def enter(self, key: str) -> AbstractContextManager[None]:
        """Count one client of a key while the block runs.

        Raises:
            RateLimited: too many clients read.
        """
        if self._following[key] >= self._most or self._following.total() >= self._most_in_all:
            raise RateLimited("too many clients follow responses of this gateway; ask again later", retry_after=1.0)
        return counted(self._following, key)
