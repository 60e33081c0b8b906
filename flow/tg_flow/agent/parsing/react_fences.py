"""Model's text -> parser: the lines that open and close a code block (CommonMark 0.31, section 4.5)."""

import re
from typing import Literal, NamedTuple

from tg_flow.agent.parsing.react_markers import UNDECIDED, Marker, Undecided, marker_at

_LINE = re.compile(r"[ \t]{0,3}(`{3,20})[ \t]{0,8}([\w+.#-]{0,30})[ \t\r]{0,8}(\n|\Z)")
_BEGUN = re.compile(r"[ \t]{0,3}(?:`{0,2}|`{3,20}[ \t]{0,8}[\w+.#-]{0,30}[ \t\r]{0,8})\Z")
_BLANK = re.compile(r"[ \t\r]{0,16}(\n|\Z)")
_SPACE = re.compile(r"\s{0,16}")

Behind = Marker | Undecided | Literal["blank"] | None


class Fence(NamedTuple):
    """Such a line: how many backticks, whether nothing stands behind them, and the index behind the line."""

    ticks: int
    bare: bool
    end: int


def fence_at(text: str, start: int, *, final: bool) -> Fence | Undecided | None:
    """The fence that the line which starts at `start` is; None = it is none."""
    line = _LINE.match(text, start)
    if line is not None and (line[3] or final):
        return Fence(len(line[1]), not line[2], line.end())
    return UNDECIDED if not final and _BEGUN.match(text, start) else None


def behind(text: str, fence: Fence, *, final: bool) -> Behind:
    """What the next line is: one with a marker, a blank one (also where the text ends), or prose."""
    blank = _BLANK.match(text, fence.end)
    if blank is not None:
        return "blank" if blank[1] or final else UNDECIDED
    marker = marker_at(text, fence.end)
    return None if final and marker == UNDECIDED else marker


def inside(text: str, fence: Fence, *, final: bool) -> Marker | Fence | Undecided | None:
    """What a block begins with, behind a few empty lines at most: a marker, another fence, or prose.

    The text's end is told as the fence itself: nothing stands in the block.
    """
    space = _SPACE.match(text, fence.end)
    start = fence.end if space is None else space.end()
    if start == len(text):
        return fence if final else UNDECIDED
    marker = marker_at(text, start)
    if isinstance(marker, Marker) or (marker == UNDECIDED and not final):
        return marker
    return fence_at(text, start, final=final)
