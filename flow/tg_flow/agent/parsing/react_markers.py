"""Model's text -> parser: the keywords at the start of a line that structure a ReAct text."""

from typing import Literal, NamedTuple

Section = Literal["thought", "action", "input", "observation", "answer"]

_NAMES: dict[str, Section] = {
    "thought": "thought",
    "action": "action",
    "action input": "input",
    "action arguments": "input",
    "arguments": "input",
    "args": "input",
    "observation": "observation",
    "final answer": "answer",
}
_FORMS: dict[str, Section] = {
    form.format(name): section
    for name, section in _NAMES.items()
    for form in ("{}:", "**{}:**", "**{}**:", "# {}:", "## {}:", "### {}:")
}
MAX_INDENT_CHARACTERS = 64
"""Most white space before a marker; a line with more is ordinary text."""
_FIRST = frozenset(form[0] for form in _FORMS)


class Marker(NamedTuple):
    """A marker: the section that begins with it, and the index after its colon."""

    section: Section
    end: int


class Undecided(NamedTuple):
    """More text is needed to decide."""


UNDECIDED = Undecided()


def marker_at(text: str, start: int) -> Marker | Undecided | None:
    """The marker on the line that starts at `start`, in any case and with the usual decoration (`**Action:**`)."""
    end = start + MAX_INDENT_CHARACTERS
    while start < len(text) and text[start] in " \t":
        start += 1
        if start > end:
            return None
    if start == len(text):
        return UNDECIDED
    if text[start].lower() not in _FIRST:
        return None
    partly = False
    for form, section in _FORMS.items():
        piece = text[start : start + len(form)].lower()
        if piece == form:
            return Marker(section, start + len(form))
        partly = partly or (start + len(piece) == len(text) and form.startswith(piece))
    return UNDECIDED if partly else None
