"""Data of a table -> a value of its type, and all errors in it, each with its keys and a sentence."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from tg_base.config.changes import SET_BY_READER
from tg_base.config.toml_positions import Keys
from tg_schema.errors import BadRequest

Options = TypeVar("Options", bound=msgspec.Struct)

TOML_WORDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "Path": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "date": "a date",
    "datetime": "a date",
    "time": "a time",
}
"""msgspec's names of types -> their names in TOML."""
_FRACTION = ("int", "float")
"""The types in msgspec's message about a whole number with a fraction."""


def list_fields(table: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields that a table of a file may have, by their names there."""
    return {
        field.encode_name: field
        for field in msgspec.structs.fields(table)
        if SET_BY_READER not in getattr(field.type, "__metadata__", ())
    }


@dataclass(frozen=True, slots=True)
class WrongValue:
    """One error.

    Attributes:
        keys: the keys of the value.
        kind: its expected type.
        reason: msgspec's message; "" for an unknown or missing field.
        unknown: the field that the type of this table lacks.
        missing: the required field that is absent.
        described: how the type describes its values, in words; "" = it does not.
    """

    keys: Keys
    kind: Any
    reason: str = ""
    unknown: str = ""
    missing: str = ""
    described: str = ""

    @property
    def blamed(self) -> Keys:
        """The keys of the value to correct."""
        return (*self.keys, self.unknown) if self.unknown else self.keys

    def describe(self, words: Mapping[str, str] = TOML_WORDS, whole: str = "the file") -> str:
        """The sentence without the place.

        Args:
            words: the names of types in the file.
            whole: the value that was read.
        """
        path = ".".join(self.keys) or whole
        if self.unknown:
            return f'unknown field "{self.unknown}" in {path}; {advise(self.unknown, list_fields(self.kind).keys())}'
        if self.missing:
            return f"{path} needs the field {self.missing}; add it"
        return f"{path} must be {self.described or self._describe_type(words)}"

    def _describe_type(self, words: Mapping[str, str]) -> str:
        """The required form of a value, from "Expected `int | null`, got `str`" or "Expected `int` <= 65535"."""
        wanted, got, found = self.reason.removeprefix("Expected ").replace("`", "").partition(", got ")
        if got:
            wanted = wanted.removesuffix(" | null")
            given = "one with a fraction" if (wanted, found) == _FRACTION else words.get(found, found)
            return f"{words.get(wanted, wanted)}, not {given}"
        if get_origin(self.kind) is Literal:
            return "one of " + ", ".join(f'"{choice}"' for choice in get_args(self.kind))
        word, _, limit = wanted.partition(" ")
        return f"{words.get(word, word)} {limit}"


def advise(name: str, known: Collection[str]) -> str:
    """The closest known name, or all of them."""
    close = get_close_matches(name, known, 1)
    return f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known)}"


# A sentinel: None is a valid value.
_WRONG: Any = object()


class TableReader:
    """Converts value by value, because msgspec stops at the first error.

    Attributes:
        wrong: the errors so far, in the order of the file.
    """

    def __init__(self) -> None:
        self.wrong: list[WrongValue] = []

    def read(self, data: Any, kind: Any, keys: Keys = ()) -> Any:
        """The value without its wrong parts; None if nothing remains."""
        value = self._read(data, kind, keys)
        return None if value is _WRONG else value

    def _read(self, data: Any, kind: Any, keys: Keys) -> Any:
        bare = _bare(kind)
        if isinstance(data, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            return self._read_struct(data, bare, keys)
        if isinstance(data, dict) and get_origin(bare) is dict:
            of_key, of_value = get_args(bare)
            named = [key for key in data if self._read(key, of_key, (*keys, key)) is not _WRONG]
            entries = {key: self._read(data[key], of_value, (*keys, key)) for key in named}
            return {key: value for key, value in entries.items() if value is not _WRONG}
        if isinstance(data, list) and get_origin(bare) in {tuple, frozenset}:
            elements = (self._read(value, get_args(bare)[0], (*keys, str(at))) for at, value in enumerate(data))
            return get_origin(bare)(value for value in elements if value is not _WRONG)
        try:
            return msgspec.convert(data, kind, dec_hook=_decode)
        except msgspec.ValidationError as error:
            self.wrong.append(WrongValue(keys, bare, str(error), described=_describe(kind)))
            return _WRONG

    def _read_struct(self, data: dict[str, Any], kind: type[msgspec.Struct], keys: Keys) -> Any:
        types, fields = _fields_of(kind)
        values = {}
        for name, value in data.items():
            if name not in fields:
                self.wrong.append(WrongValue(keys, kind, unknown=name))
            elif (right := self._read(value, types[fields[name].name], (*keys, name))) is not _WRONG:
                values[fields[name].name] = right
        needed = {name: field.name for name, field in fields.items() if field.required}
        # A table with an unknown field reports no missing one: it is probably the same field, misspelt.
        if not any(wrong.blamed[:-1] == keys for wrong in self.wrong):
            self.wrong += [WrongValue(keys, kind, missing=name) for name in needed if name not in data]
        return kind(**values) if values.keys() >= set(needed.values()) else _WRONG


def read_options(table: Mapping[str, Any], kind: type[Options], owner: str) -> Options:
    """Convert a table to typed options.

    Args:
        table: the table of the configuration.
        kind: the class of the options.
        owner: the owner of the options, for the error.

    Raises:
        BadRequest: an option is unknown, missing or has a wrong value; the error's `option` has its keys.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError:
        # msgspec reports the place only within its message; the second reading finds the keys.
        reader = TableReader()
        reader.read(table, kind)
        first = reader.wrong[0]
        raise BadRequest(f"{owner}: {first.describe(whole='its options')}").at(*first.blamed) from None


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, msgspec.structs.FieldInfo]]:
    """The types of a struct's fields by their names, and the fields by their names in the file."""
    return get_type_hints(kind, include_extras=True), list_fields(kind)


def _describe(kind: Any) -> str:
    """How a type's mark describes its values; "" = it does not."""
    marks = getattr(kind, "__metadata__", ())
    return next((mark.description or "" for mark in marks if isinstance(mark, msgspec.Meta)), "")


def _bare(kind: Any) -> Any:
    """A type without `| None`, constraints and marks."""
    while hasattr(kind, "__metadata__") or get_origin(kind) in {Union, UnionType}:
        parts = [part for part in get_args(kind) if part is not type(None)]
        if not hasattr(kind, "__metadata__") and len(parts) > 1:
            return kind
        kind = kind.__origin__ if hasattr(kind, "__metadata__") else parts[0]
    return kind


def _decode(kind: type, value: Any) -> Any:
    """Convert text to a path, for which TOML has no type."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
