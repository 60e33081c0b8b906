"""Names that others chose -> rows of the live view: short, printable, and each of its own."""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

from tg_base.protocol import Presence
from tg_base.telemetry import make_printable
from tg_schema.live import LiveProcessor

MAX_ROWS: Final = 200
"""Rows of a table; of the streams the oldest."""
MAX_NAME_CHARACTERS: Final = 64
"""Characters of a name that are shown."""


def describe_processor(presence: Presence, names: Mapping[str, str]) -> LiveProcessor:
    """The row of a processor; `names` has its queues' names by their topics."""
    state = "leaving" if presence.leaving else "loading" if presence.loading else presence.failing or "ready"
    queues = ", ".join(names.get(each) or each.rpartition("/")[2] for each in presence.queues[:MAX_ROWS])
    models = cut_name(", ".join(presence.models))
    return LiveProcessor(cut_name(queues), models, presence.in_flight, presence.capacity, cut_name(state))


def cut_name(name: str) -> str:
    """A name, short and printable."""
    return make_printable(name if len(name) <= MAX_NAME_CHARACTERS else f"{name[: MAX_NAME_CHARACTERS - 1]}\u2026")


def name_row(name: str) -> str:
    """As `cut_name`, for the name of a row: the end of a truncated name distinguishes it from others."""
    cut = cut_name(name)
    return cut if cut == name else f"{cut[: MAX_NAME_CHARACTERS - 9]}\u2026{crc32(name.encode(errors='replace')):08x}"
