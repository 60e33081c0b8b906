"""TOML text -> the line of each key, for error messages; `tomllib`, which parses the values, gives no positions."""

import re
import tomllib
from bisect import bisect_right
from typing import NamedTuple

_SPACE = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_KEY = re.compile(r'[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|\'[^\']*\'')
_LONG_TEXT = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')
_PLAIN = re.compile(r"[^,\]}\n#]*")

Keys = tuple[str, ...]
"""The path of a value: keys of tables, and indexes of lists as text."""


class Position(NamedTuple):
    """Lines counted from 1: of a key, and of the start of its multi-line string (0 = the value is no such string)."""

    line: int
    text: int = 0


def places_of(text: str) -> dict[Keys, Position]:
    """The positions of all keys, tables and list elements of a valid TOML text."""
    return _Reader(text).read()


class _Reader:
    """Scans statements; values are skipped, except the elements of lists and the keys of inline tables."""

    # No syntax is checked here: `tomllib` has accepted the text before, so each pattern can be as loose as that allows.

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._places: dict[Keys, Position] = {}
        self._lists: dict[Keys, int] = {}

    def read(self) -> dict[Keys, Position]:
        table: Keys = ()
        self._skip(_BETWEEN)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BETWEEN)
        return self._places

    def _header(self) -> Keys:
        line, is_list = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if is_list else 1
        keys = self._inside(self._keys())
        self._at += 2 if is_list else 1
        if is_list:
            index = self._lists[keys] = self._lists.get(keys, -1) + 1
            keys = (*keys, str(index))
        self._add(keys, line)
        return keys

    def _add(self, keys: Keys, line: int) -> None:
        """Record a key, and the implicit tables on its path."""
        # The first occurrence wins: a table may be extended by later headers.
        for length in range(1, len(keys) + 1):
            self._places.setdefault(keys[:length], Position(line))

    def _inside(self, keys: Keys) -> Keys:
        """The same path, with the index of the current element after each array of tables on it."""
        full: Keys = ()
        for key in keys[:-1]:
            full = (*full, key)
            if full in self._lists:
                full = (*full, str(self._lists[full]))
        return (*full, keys[-1])

    def _keys(self) -> Keys:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            keys.append(self._key())
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return tuple(keys)
            self._at += 1

    def _key(self) -> str:
        raw = self._skip(_KEY)
        # A quoted key has the escapes of a text.
        return str(tomllib.loads(f"key = {raw}")["key"]) if raw[:1] in {'"', "'"} else raw

    def _pair(self, table: Keys) -> None:
        line = self._line()
        keys = (*table, *self._keys())
        self._at += 1
        self._skip(_SPACE)
        self._add(keys, line)
        self._value(keys, line)

    def _value(self, keys: Keys, line: int) -> None:
        if long := _LONG_TEXT.match(self._text, self._at):
            # TOML drops a line break directly after the opening quotes: the string then begins on the next line.
            first = self._line() + (self._text[self._at + 3 : self._at + 5].lstrip("\r")[:1] == "\n")
            self._places[keys] = Position(line, first)
            self._at = long.end()
        elif self._text[self._at] in "\"'":
            self._skip(_TEXT)
        elif self._text[self._at] == "[":
            self._elements(keys)
        elif self._text[self._at] == "{":
            self._inline_table(keys)
        else:
            self._skip(_PLAIN)

    def _elements(self, keys: Keys) -> None:
        self._at += 1
        index = 0
        self._skip(_BETWEEN)
        while self._text[self._at] != "]":
            self._places[*keys, str(index)] = Position(self._line())
            self._value((*keys, str(index)), self._line())
            index += 1
            self._skip(_BETWEEN)
        self._at += 1

    def _inline_table(self, keys: Keys) -> None:
        self._at += 1
        self._skip(_BETWEEN)
        while self._text[self._at] != "}":
            self._pair(keys)
            self._skip(_BETWEEN)
        self._at += 1

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()
