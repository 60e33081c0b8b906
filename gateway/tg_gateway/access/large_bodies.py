"""Key -> its share of memory: how many bytes of large bodies one key may have in this process at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tg_base.telemetry import REFUSALS
from tg_schema.errors import RateLimited

RETRY_AFTER_SECONDS: Final = 1.0
"""`retry_after` of a refusal, in seconds: one of the key's large requests may have ended by then."""


class LargeBodies:
    """Bounds the bytes of each key's large bodies. A body counts from its first byte until its request is over.

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
        """Count one body of this key until the block is left. Yields a function that takes the body's size in bytes.

        That function raises RateLimited if this body and the key's other large ones have too many bytes
        together.
        """
        owner, counted = key or "", 0

        def count(size: int) -> None:
            nonlocal counted
            if size <= max(self._small, counted):
                return
            held = self._held[owner]
            # Refuse a body only if other bodies are in memory: otherwise the largest permitted body could never be
            # sent.
            if held > counted and held - counted + size > self._most:
                REFUSALS.labels("gateway", "large-bodies").inc()
                raise RateLimited(
                    "this key's running large requests have as many bytes as it may use; wait for one to end",
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
