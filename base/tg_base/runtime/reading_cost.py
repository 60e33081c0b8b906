"""JSON -> whether reading it would hold up the event loop, told by its size, and how many objects and names it has."""

from typing import Final

from tg_schema.occurrences import has_more_of

MAX_QUICK_BYTES: Final = 64 * 1024
"""Bytes up to which nobody need ask."""
MAX_READ_HERE_BYTES: Final = 1024 * 1024
"""Bytes up to which text is read in a few milliseconds."""
MAX_READ_HERE_OBJECTS: Final = 1000
"""Objects up to which each is read in a few milliseconds: one costs up to 10 us to convert."""
MAX_READ_HERE_NAMES: Final = 8000
"""Names of fields up to which all are read in a few milliseconds: one costs up to 2 us."""
_OPENINGS: Final = (b'{"', b"{}", b"{ ", b"{\n", b"{\t", b"{\r")
"""How an object begins. Within a string the quote and the line break are escaped, so code in a text counts little."""
_NAME_ENDS: Final = (b'":', b" :", b"\n:", b"\t:", b"\r:")
"""How a name and its colon end."""


def is_costly(body: bytes) -> bool:
    """Whether a worker process should read this."""
    if len(body) > MAX_READ_HERE_BYTES:
        return True
    if len(body) <= MAX_QUICK_BYTES:
        return False
    return _has_many_objects(body) or _has_many_names(body)


def _has_many_objects(body: bytes) -> bool:
    # Counting braces alone is cheap, and rules out nearly every body; so does counting colons below.
    if not has_more_of((b"{",), body, MAX_READ_HERE_OBJECTS):
        return False
    return sum(map(body.count, _OPENINGS)) > MAX_READ_HERE_OBJECTS


def _has_many_names(body: bytes) -> bool:
    if not has_more_of((b":",), body, MAX_READ_HERE_NAMES):
        return False
    # A quote within a string is escaped, and ends no name; unless what is escaped is the backslash before it.
    escaped = body.count(b'\\":') - body.count(b'\\\\":')
    return sum(map(body.count, _NAME_ENDS)) - escaped > MAX_READ_HERE_NAMES
