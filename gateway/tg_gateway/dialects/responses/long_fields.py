"""Fields of a request that a response repeats -> the events of that response, without a copy of the long ones.

Three events have the whole response. With 10 MB of tools, to copy them into each event would hold up everybody.
"""

import re
import uuid
from typing import Any, Final

import msgspec

from tg_gateway.dialects import Output
from tg_schema import encode

MAX_COPIED_BYTES: Final = 64 * 1024
"""Bytes of a field that is written into each event."""
_MARKS: Final = re.compile(rb'("[0-9a-f]{32}")')
"""The pattern of a mark. The group makes `split` return the marks too, each between the pieces around it."""


class LongFields:
    """The long fields of one response. An unguessable mark stands for each until it is filled in."""

    def __init__(self) -> None:
        self._fields: dict[bytes, bytes] = {}

    def encode(self, value: Any) -> msgspec.Raw:
        """The JSON of a field, or the mark of one that is long."""
        data = encode(value)
        if len(data) <= MAX_COPIED_BYTES:
            return msgspec.Raw(data)
        mark = b'"%b"' % uuid.uuid4().hex.encode()
        self._fields[mark] = data
        return msgspec.Raw(mark)

    def fill(self, data: bytes) -> Output:
        """These bytes, with the long fields in place of their marks."""
        if not self._fields:
            return data
        return tuple(self._fields.get(piece, piece) for piece in _MARKS.split(data))
