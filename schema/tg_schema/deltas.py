"""Records of a stream -> one record: how their fields add up."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

MAX_COUNT = 2**53
"""The highest whole number that every JSON parser reads exactly."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""A count, for example of tokens."""


def join_text(texts: Iterable[str | None]) -> str | None:
    """Concatenation; None if no record has a text (null is not the same as empty)."""
    known = [text for text in texts if text is not None]
    return "".join(known) if known else None


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Sum of deltas; None = unknown, 0 = counted zero."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
