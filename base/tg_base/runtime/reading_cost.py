"""JSON -> whether decoding it would block the event loop too long, judged by its size, objects and field names."""

from typing import Final

from tg_schema.occurrences import has_more_of

MAX_QUICK_BYTES: Final = 64 * 1024
"""Bytes up to which a body is never costly; callers need not ask."""
MAX_READ_HERE_BYTES: Final = 1024 * 1024
"""Bytes of plain text that are decoded in a few milliseconds."""
MAX_READ_HERE_OBJECTS: Final = 1000
"""Objects that are decoded in a few milliseconds, at up to 10 us each."""
MAX_READ_HERE_NAMES: Final = 8000
"""Field names that are decoded in a few milliseconds, at up to 2 us each."""
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
    # A quote within a string is escaped and does not end a name, unless the escaped character is the backslash before
    # it.
    escaped = body.count(b'\\":') - body.count(b'\\\\":')
    return sum(map(body.count, _NAME_ENDS)) - escaped > MAX_READ_HERE_NAMES
