"""Key -> the bytes of its large bodies: what one key may have in this process at the same time."""

from collections import Counter
from collections.abc import Iterator
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
    def open(self, key: str | None) -> Iterator["LargeBody"]:
        """Count one body of this key, until the block is left."""
        body = LargeBody(self, key or "")
        try:
            yield body
        finally:
            self._held[body.key] -= body.counted
            if not self._held[body.key]:
                del self._held[body.key]

    def count(self, body: "LargeBody", size: int) -> None:
        """As `LargeBody.count`."""
        if size <= max(self._small, body.counted):
            return
        held = self._held[body.key]
        # Only beside others: one body alone passes, or the largest that is allowed could never be sent.
        if held > body.counted and held - body.counted + size > self._most:
            REFUSALS.labels("gateway", "large-bodies").inc()
            raise RateLimited(
                "this key has as many bytes of large requests running as it may; wait for one to end",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._held[body.key] += size - body.counted
        body.counted = size


class LargeBody:
    """One request's body.

    Attributes:
        key: whose it is; empty = nobody's.
        counted: bytes that are counted of it.
    """

    def __init__(self, bodies: LargeBodies, key: str) -> None:
        self._bodies = bodies
        self.key = key
        self.counted = 0

    def count(self, size: int) -> None:
        """It has this many bytes, or will have.

        Raises:
            RateLimited: together with the key's other large bodies these are too many.
        """
        self._bodies.count(self, size)
