"""JSON -> whether reading it would hold up the event loop, told by its size and by how many objects it has."""

from typing import Final

from tg_schema.occurrences import has_more_of

MAX_QUICK_BYTES: Final = 64 * 1024
"""Bytes up to which nobody need ask."""
MAX_READ_HERE_BYTES: Final = 1024 * 1024
"""Bytes up to which text is read in a few milliseconds."""
MAX_READ_HERE_OBJECTS: Final = 1000
"""Objects up to which each is read in a few milliseconds: one costs up to 10 us to convert."""
_OPENINGS: Final = (b'{"', b"{}", b"{ ", b"{\n", b"{\t", b"{\r")
"""How an object begins. Within a string the quote and the line break are escaped, so code in a text counts little."""


def is_costly(body: bytes) -> bool:
    """Whether a worker process should read this."""
    if len(body) > MAX_READ_HERE_BYTES:
        return True
    if len(body) <= MAX_QUICK_BYTES or not has_more_of((b"{",), body, MAX_READ_HERE_OBJECTS):
        return False
    return sum(map(body.count, _OPENINGS)) > MAX_READ_HERE_OBJECTS
