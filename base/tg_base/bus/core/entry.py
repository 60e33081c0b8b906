"""Log -> reader: one entry, as `Bus.append` has written it."""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry of a log. `Bus.follow` takes its `position`. Entries with equal positions are the same entry."""

    body: bytes
    properties: Mapping[str, str]
    position: str
