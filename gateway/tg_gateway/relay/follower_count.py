"""Answer store -> who follows an answer: how many clients do so side by side, of each key and of all."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tg_schema.errors import RateLimited


class FollowerCount:
    """Counts them, and refuses more.

    Args:
        most: of one key.
        most_in_all: of all keys.
    """

    def __init__(self, most: int, most_in_all: int) -> None:
        self._most = most
        self._most_in_all = most_in_all
        self._following: Counter[str] = Counter()

    @contextmanager
    def enter(self, key: str) -> Iterator[None]:
        """Count one client of a key while the block runs.

        Raises:
            RateLimited: there are as many as may be.
        """
        if self._following[key] >= self._most or self._following.total() >= self._most_in_all:
            raise RateLimited("too many clients follow responses of this gateway; ask again later", retry_after=1.0)
        self._following[key] += 1
        try:
            yield
        finally:
            # In place of `[key] -= 1`: a key that has none any more is forgotten.
            self._following -= Counter([key])
