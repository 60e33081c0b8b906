"""Regular expression -> a grammar of the texts that match it as a whole.

Python's own parser reads the expression, because clients mean Python's language. The grammar has the expression in
Rust's language, in which some signs mean something else: `a++`, `[a&&b]`.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from tg_schema.errors import BadRequest

MAX_REGEX_CHARACTERS = 2000

MAX_STATES = 1000
"""Most characters of the expression with its counted repetitions written out: each becomes a state of an automaton."""

_SUPPORTED = (
    "regex: only characters, classes, groups, alternatives and repetitions can be enforced; leave out the rest (back "
    "references, looking ahead or behind, word boundaries, anchors in the middle, flags)"
)
_CLASSES = {"DIGIT": "0-9", "SPACE": r"\x20\x09-\x0D", "WORD": r"0-9A-Z_a-z"}
_ENDS = {"AT_BEGINNING": 0, "AT_BEGINNING_STRING": 0, "AT_END": -1, "AT_END_STRING": -1}
"""Anchors, and the index at which each has no effect, because the whole text must match anyway."""


@lru_cache(maxsize=64)
def regex_grammar(expression: str) -> str:
    r"""The grammar.

    `\d`, `\s` and `\w` match only ASCII; `.` matches any character except a line feed. Anchors may stand at the ends.

    Raises:
        BadRequest: it is not a regular expression, is too long, or uses something that a grammar cannot express.
    """
    if len(expression) > MAX_REGEX_CHARACTERS:
        raise BadRequest(f"regex may have {MAX_REGEX_CHARACTERS} characters")
    try:
        parsed = import_module("re._parser").parse(expression, re.ASCII)
        body, states = _sequence(_without_anchors(parsed))
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(f"regex: this is no regular expression, or too deep: {error}") from None
    if parsed.state.flags & ~(re.ASCII | re.UNICODE):
        raise BadRequest(_SUPPORTED)
    if states > MAX_STATES:
        raise BadRequest(
            f"regex: with its repetitions written out it may have {MAX_STATES} characters; make it simpler"
        )
    return f"start: {write_pattern(body)}"


def write_pattern(body: str) -> str:
    """A terminal of a grammar that matches the pattern `body`, which is in Rust's language."""
    return f"/(?s:{body})/" if body else '""'


def escape_text(text: str) -> str:
    """A pattern that matches exactly `text`."""
    return "".join([_character(ord(character)) for character in text])


def _without_anchors(parsed: Any) -> list[Any]:
    items = list(parsed)
    for place in (0, -1):
        while items and str(items[place][0]) == "AT" and _ENDS.get(str(items[place][1])) == place:
            items.pop(place)
    return items


def _sequence(items: Iterable[Any]) -> tuple[str, int]:
    """The pattern of a sequence of elements, and its number of states."""
    parts = [_item(str(op), value) for op, value in items]
    return "".join([part for part, _ in parts]), sum([states for _, states in parts])


def _item(op: str, value: Any) -> tuple[str, int]:
    if op in _SINGLES:
        return _SINGLES[op](value), 1
    if op == "BRANCH":
        branches = [_sequence(branch) for branch in value[1]]
        return f"(?:{'|'.join([text for text, _ in branches])})", sum([states for _, states in branches])
    if op == "SUBPATTERN" and not (value[1] or value[2]):
        text, states = _sequence(value[3])
        return f"(?:{text})", states
    if op in {"MAX_REPEAT", "MIN_REPEAT"}:
        return _repetition(*value)
    raise BadRequest(_SUPPORTED)


def _repetition(least: int, most: int, repeated: Any) -> tuple[str, int]:
    text, states = _sequence(repeated)
    unlimited = most == import_module("re._constants").MAXREPEAT
    times = (least + 1) if unlimited else int(most)
    if times == 0:
        return "", 0
    bounds = f"{{{least},}}" if unlimited else f"{{{least},{int(most)}}}"
    return f"(?:{text}){bounds}", states * times


def _class(items: list[Any]) -> str:
    negated = str(items[0][0]) == "NEGATE"
    members = items[1:] if negated else items
    if len(members) == 1 and str(members[0][0]) == "CATEGORY" and "_NOT_" in str(members[0][1]):
        negated = not negated
        return f"[{'^' * negated}{_CLASSES[str(members[0][1]).rpartition('_')[2]]}]"
    return f"[{'^' * negated}{''.join([_member(str(op), value) for op, value in members])}]"


def _member(op: str, value: Any) -> str:
    if op == "LITERAL":
        return _character(value)
    if op == "RANGE":
        return f"{_character(value[0])}-{_character(value[1])}"
    kind = str(value).removeprefix("CATEGORY_")
    if kind not in _CLASSES:
        raise BadRequest(r"regex: \D, \S and \W may not stand beside others in a class")
    return _CLASSES[kind]


def _character(code: int) -> str:
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    if 0xD800 <= code <= 0xDFFF:
        raise BadRequest("regex: a character is not Unicode")
    return f"\\x{{{code:X}}}"


_SINGLES: dict[str, Callable[[Any], str]] = {
    "LITERAL": lambda code: _character(code),
    "NOT_LITERAL": lambda code: f"[^{_character(code)}]",
    "ANY": lambda _: r"[^\n]",
    "IN": _class,
}
"""The pattern of one character."""


MAX_CHOICES = 64
MAX_CHOICE_CHARACTERS = 1000


def choice_grammar(choices: tuple[str, ...]) -> str:
    """The grammar.

    Raises:
        BadRequest: there are too many choices, or one is too long or not Unicode.
    """
    if len(choices) > MAX_CHOICES or any(len(choice) > MAX_CHOICE_CHARACTERS for choice in choices):
        raise BadRequest(f"choice may have {MAX_CHOICES} texts of at most {MAX_CHOICE_CHARACTERS} characters")
    if any("\ud800" <= character <= "\udfff" for choice in choices for character in choice):
        raise BadRequest("choice: a text is not Unicode")
    # Use a single terminal: of several, llguidance would take the longest match, although a shorter choice is valid.
    return f"start: {write_pattern('|'.join([escape_text(choice) for choice in choices]))}"
