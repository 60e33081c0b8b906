"""Long record -> records that each fit into one event: clients limit the length of a line (aiohttp: 128 KiB)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tg_schema.codec import encode

MAX_EVENT_BYTES = 64 * 1024
"""JSON bytes, including escapes, of a record's content; the other fields of an event add a few hundred."""
MAX_CHARACTER_BYTES = 6
"""JSON bytes of one character: `\\u001f` is the longest."""
_QUOTES_BYTES = 2

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
Part = Mapping[str, Any]


def cut_text(text: str | None, size: int) -> list[str]:
    """The text in pieces of at most `size` JSON bytes each; no character is cut. None and "" have no piece."""
    if not text:
        return []
    # Nearly all texts are short: they need not be encoded to be measured.
    if len(text) * MAX_CHARACTER_BYTES + _QUOTES_BYTES <= size or len(text) == 1:
        return [text]
    length = len(encode(text))
    if length <= size:
        return [text]
    step = -(-len(text) // (length // max(size - _QUOTES_BYTES, 1) + 1))
    pieces = (text[start : start + step] for start in range(0, len(text), step))
    # Characters differ in size: a piece may still be too long, and is cut again.
    return [part for piece in pieces for part in cut_text(piece, size)]


def cut_list(values: Iterable[T], size: int) -> list[tuple[T, ...]]:
    """The values in groups of at most `size` JSON bytes each; a larger value is a group of its own."""
    groups: list[list[T]] = []
    room = 0
    for value in values:
        length = len(encode(value)) + 1
        if length > room:
            groups.append([])
            room = size
        groups[-1].append(value)
        room -= length
    return [tuple(group) for group in groups]


def in_parts(record: R, continuing: R, parts: Sequence[Part]) -> Sequence[R]:
    """One record for each part, in order; the last one also has all other fields of the record.

    Args:
        record: the record to cut.
        continuing: the same record without any part, and without the fields of its end.
        parts: fields of the record; together they are its content.
    """
    if len(parts) < 2:
        return (record,)
    cleared = {name: getattr(continuing, name) for part in parts for name in part}
    replace = msgspec.structs.replace
    return (*(replace(continuing, **part) for part in parts[:-1]), replace(record, **{**cleared, **parts[-1]}))
