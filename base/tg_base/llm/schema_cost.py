"""JSON schema -> a bound of the work of checking a value against it, before anything is checked.

A small schema may mean much work: if each of thirty definitions refers twice to the next one, a thousand million ways
lead to the last one. The bound counts the ways by which one value is reached, at each depth of the value.
"""

import re
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from tg_schema.codec import depth_of

MAX_WAYS: Final = 100_000
"""Ways through a schema to its parts. Schemas that people write have a few, and some thousands with alternatives."""
MAX_COUNTED: Final = 4000
"""Sub-schemas that are looked at on the event loop, once for each level of a value: a few milliseconds."""
MAX_QUICK_BYTES: Final = 32 * 1024
"""JSON bytes of a schema that is compiled in a few milliseconds."""
MAX_QUICK_STATES: Final = 500
"""States of all patterns of such a schema, at up to 8 us each."""
MAX_REFERENCE_CHARACTERS: Final = 1000
"""The most characters of a `$ref` that is followed; it is followed again at each level of a value."""
UNKNOWN: Final = float("inf")
_ALL: Final = -1
"""All levels at once, except recursive parts."""

_HERE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose sub-schemas apply to the same value."""
_ONE: Final = frozenset({"properties", "prefixItems"})
"""Keywords of which at most one sub-schema applies to each value within the value."""
_EACH: Final = frozenset(
    {"patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties", "contains"}
    | {"items", "additionalItems", "unevaluatedItems"}
)
"""Keywords whose sub-schemas may all apply to one value within the value."""
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_UNEVALUATED_TIMES: Final = 4
"""How often the keywords beside an unevaluated one are checked, at most."""
_UNKNOWN_WORDS: Final = frozenset({"$dynamicRef", "$recursiveRef"})
_LITERALS: Final = ("enum", "const")
_QUICK_ITEMS: Final = 4
"""Names, or items of a list, that are looked at in the time that a sub-schema takes."""
_QUICK_LITERAL_BYTES: Final = 16
_BACKTRACKING: Final = re.compile(r"\\[pPkN0-9]|\(\?(?!:)")
"""Beginnings of constructs for which a pattern needs an automaton of many states."""
_COUNT: Final = re.compile(r"(\)?)\{(\d+)(?:,(\d*))?\}")


class _Uncounted(Exception):
    """The work has no known bound."""


class SchemaCost:
    """The work of one schema, in steps of some nanoseconds.

    Args:
        schema: the JSON schema.
        size: its JSON bytes.
        most: how many sub-schemas are looked at; the cost of a larger schema stays unknown.

    Attributes:
        too_large: whether it has more ways to its parts than are allowed.
        quick: whether it is compiled in a few milliseconds.
    """

    def __init__(self, schema: Any, size: int, most: int = MAX_COUNTED) -> None:
        self._root = schema
        self._most = most
        self._known: dict[tuple[int, int], int] = {}
        self._states = 0
        self._repeats = self._recursive = self.too_large = self.quick = False
        self._ways: list[int] = []
        with suppress(_Uncounted, RecursionError, ValueError):
            ways = self._count(schema, _ALL)
            self.too_large = ways > MAX_WAYS
            self._ways = [] if self._recursive else [ways]
            self.quick = size <= MAX_QUICK_BYTES and self._states <= MAX_QUICK_STATES

    def of(self, value: bytes) -> float:
        """A bound of the steps for a value's JSON text."""
        depth = depth_of(value)
        try:
            # In a recursive schema, each level of the value may have more ways than the one before.
            while self._recursive and self.quick and len(self._ways) <= depth:
                self._ways.append(self._count(self._root, len(self._ways)))
        except (_Uncounted, RecursionError):
            return UNKNOWN
        if not self.quick:
            return UNKNOWN
        return max(self._ways[: depth + 1]) * len(value) * (depth + 1 if self._repeats else 1)

    def _count(self, schema: Any, level: int) -> int:
        """The steps for one value, `level` levels within the value that `schema` is for."""
        if not isinstance(schema, dict):
            return int(level <= 0)
        place = (id(schema), level)
        if place not in self._known:
            if len(self._known) >= self._most:
                raise _Uncounted
            if level == _ALL:
                self._known[place] = 0
            # A schema that refers to itself for the same value would never end here.
            self._known[place] = self._sum(schema, level)
        elif level == _ALL and not self._known[place]:
            self._recursive = True
        return self._known[place]

    def _sum(self, schema: dict[str, Any], level: int) -> int:
        if not _UNKNOWN_WORDS.isdisjoint(schema) or (schema is not self._root and not {"$id", "id"}.isdisjoint(schema)):
            raise _Uncounted
        here = below = 0
        within = level if level == _ALL else level - 1
        for word, value in schema.items():
            parts = value.values() if word in _MAPS and isinstance(value, dict) else value
            parts = parts if isinstance(parts, list | type({}.values())) else [value]
            if word in _HERE:
                here += sum(self._count(part, level) for part in parts)
            elif word == "$ref":
                here += self._count(self._follow(value), level)
            elif level and (word in _ONE or (word == "items" and isinstance(value, list))):
                below += max((self._count(part, within) for part in parts), default=0)
            elif level and word in _EACH:
                below += sum(self._count(part, within) for part in parts)
        times = 1 if _UNEVALUATED.isdisjoint(schema) else _UNEVALUATED_TIMES
        return times * here + below + (0 if level > 0 else self._weigh(schema))

    def _weigh(self, schema: dict[str, Any]) -> int:
        """The steps outside of its sub-schemas."""
        self._repeats |= "uniqueItems" in schema
        patterns = (schema.get("pattern"), *(schema.get("patternProperties") or ()))
        states = sum(_count_states(pattern) for pattern in patterns if isinstance(pattern, str))
        self._states += states
        items = sum(len(value) for value in schema.values() if isinstance(value, dict | list)) // _QUICK_ITEMS
        literal = sum(len(msgspec.json.encode(schema[word])) for word in _LITERALS if word in schema)
        if schema.get("format") == "regex":
            raise _Uncounted
        return 1 + states + items + literal // _QUICK_LITERAL_BYTES

    def _follow(self, reference: Any) -> Any:
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise _Uncounted
        if len(reference) > MAX_REFERENCE_CHARACTERS:
            raise _Uncounted
        found = self._root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else _item(found, name)
        return found


def _item(values: Any, name: str) -> Any:
    return values[int(name)] if isinstance(values, list) and name.isdecimal() and int(name) < len(values) else None


def _count_states(pattern: str) -> int:
    """The states of the machine that matches a pattern, with its counted repetitions written out."""
    # Their counts may have thousands of digits, whose products take minutes.
    if len(pattern) > MAX_QUICK_STATES or _BACKTRACKING.search(pattern):
        raise _Uncounted
    states, times = len(pattern), 1
    for group, least, most in _COUNT.findall(pattern):
        count = max(int(least), int(most or 0), 1)
        # Groups may be within each other, so their numbers multiply.
        times *= count if group else 1
        states += 0 if group else count
    if states * times > MAX_QUICK_STATES:
        raise _Uncounted
    return states * times
