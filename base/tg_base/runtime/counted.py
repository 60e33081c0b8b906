"""Block -> a count by key, which includes the block until it is left."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def counted(counts: Counter[T], key: T, size: int = 1) -> Iterator[None]:
    """Count this much for a key while the block runs. A key for which nothing is left is forgotten."""
    counts[key] += size
    try:
        yield
    finally:
        counts[key] -= size
        if not counts[key]:
            del counts[key]
