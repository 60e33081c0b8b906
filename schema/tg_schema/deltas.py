"""How the fields of a stream's records add up."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

MAX_COUNT = 2**53
"""The highest count that every reader of JSON reads as it stands."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""How many of something; no usage of a model is beyond it."""


def join_text(texts: Iterable[str | None]) -> str | None:
    """Concatenation; None where no record had any text (null is not the same as empty)."""
    known = [text for text in texts if text is not None]
    return "".join(known) if known else None


def add_counts(counts: Iterable[int | None]) -> int | None:
    """Sum of deltas; None = unknown, 0 = counted zero."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
