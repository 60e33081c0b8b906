"""Key -> the bytes of its large bodies: what one key may have in this process at the same time."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tg_base.telemetry import REFUSALS
from tg_schema.errors import RateLimited

RETRY_AFTER_SECONDS: Final = 1.0
"""Seconds to come back after: one of the key's large requests may have ended by then."""


class LargeBodies:
    """Bounds what the large bodies of each key hold, from their first byte until their request is over.

    Args:
        small: bytes up to which a body is not counted.
        most: bytes that all large bodies of one key may have together; one alone may exceed it.
    """

    def __init__(self, small: int, most: int) -> None:
        self._small = small
        self._most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def open(self, key: str | None) -> Iterator[Callable[[int], None]]:
        """Count one body of this key, until the block is left; yields what is told how many bytes it has or will have.

        That raises RateLimited where they are too many, together with the key's other large bodies.
        """
        owner, counted = key or "", 0

        def count(size: int) -> None:
            nonlocal counted
            if size <= max(self._small, counted):
                return
            held = self._held[owner]
            # Only beside others: one body alone passes, or the largest that is allowed could never be sent.
            if held > counted and held - counted + size > self._most:
                REFUSALS.labels("gateway", "large-bodies").inc()
                raise RateLimited(
                    "this key has as many bytes of large requests running as it may; wait for one to end",
                    retry_after=RETRY_AFTER_SECONDS,
                )
            self._held[owner] += size - counted
            counted = size

        try:
            yield count
        finally:
            self._held[owner] -= counted
            if not self._held[owner]:
                del self._held[owner]
