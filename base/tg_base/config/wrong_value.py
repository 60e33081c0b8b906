"""A wrong value -> the sentence that says what is expected."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec

from tg_base.config.changes import SET_BY_READER
from tg_base.config.toml_positions import Keys

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
"""msgspec's names of types -> how they are called in a TOML file."""
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
        described: what the type says that a value is, in words; "" = no more than its name.
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
            words: what types are called in the file.
            whole: what was read.
        """
        path = ".".join(self.keys) or whole
        if self.unknown:
            return f'unknown field "{self.unknown}" in {path}; {advise(self.unknown, list_fields(self.kind).keys())}'
        if self.missing:
            return f"{path} needs the field {self.missing}; add it"
        return f"{path} must be {self.described or self._describe_type(words)}"

    def _describe_type(self, words: Mapping[str, str]) -> str:
        """What a value must be, made from msgspec's "Expected `int | null`, got `str`" or "Expected `int` <= 65535"."""
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
