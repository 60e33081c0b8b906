"""Log of a topic -> reader: one entry of what `Bus.append` has written."""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry, as it was appended."""

    body: bytes
    properties: Mapping[str, str]
