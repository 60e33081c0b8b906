"""Log of a topic -> reader: one entry of what `Bus.append` has written."""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry, as it was appended; `position` says where, to `Bus.follow`. Equal positions are the same entry."""

    body: bytes
    properties: Mapping[str, str]
    position: str
