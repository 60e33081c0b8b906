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
    """A fence line: its number of backticks, whether nothing follows them, and the index after the line."""

    ticks: int
    bare: bool
    end: int


def fence_at(text: str, start: int, *, final: bool) -> Fence | Undecided | None:
    """The fence on the line that starts at `start`; None = there is none."""
    line = _LINE.match(text, start)
    if line is not None and (line[3] or final):
        return Fence(len(line[1]), not line[2], line.end())
    return UNDECIDED if not final and _BEGUN.match(text, start) else None


def behind(text: str, fence: Fence, *, final: bool) -> Behind:
    """What the line after the fence is: a marker, blank (also at the end of the text), or ordinary text."""
    blank = _BLANK.match(text, fence.end)
    if blank is not None:
        return "blank" if blank[1] or final else UNDECIDED
    marker = marker_at(text, fence.end)
    return None if final and marker == UNDECIDED else marker


def inside(text: str, fence: Fence, *, final: bool) -> Marker | Fence | Undecided | None:
    """What a fenced block begins with, after at most a few empty lines: a marker, another fence, or ordinary text.

    At the end of the text it returns the fence itself: the block is empty.
    """
    space = _SPACE.match(text, fence.end)
    start = fence.end if space is None else space.end()
    if start == len(text):
        return fence if final else UNDECIDED
    marker = marker_at(text, start)
    if isinstance(marker, Marker) or (marker == UNDECIDED and not final):
        return marker
    return fence_at(text, start, final=final)
