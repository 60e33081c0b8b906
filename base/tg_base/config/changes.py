"""Configuration in force, edited one -> what comes into force at once, and what waits for a restart."""

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

import msgspec

Value = TypeVar("Value")
Table = TypeVar("Table", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Marks a field's type."""

    followed: bool


Followed = Annotated[Value, _Reading(followed=True)]
"""The type of a field that is followed while a process runs, with all below it that does not say otherwise."""

AtStart = Annotated[Value, _Reading(followed=False)]
"""The type of a field that is read when a process starts, below one that is followed; above, all fields are."""

_ABSENT: Any = object()


class Changes(Generic[Table]):
    """What an edit changes.

    Args:
        held: what is in force.
        edited: what the file says now.

    Attributes:
        in_force: `held` with all that is followed as `edited` says.
        followed: keys of the values that differ and are followed, joined by dots.
        at_start: keys of the values that differ and need a restart.
    """

    def __init__(self, held: Table, edited: Table) -> None:
        self.followed: list[str] = []
        self.at_start: list[str] = []
        self.in_force: Table = self._merge((), held, edited, followed=False)

    def _merge(self, keys: tuple[str, ...], held: Any, edited: Any, *, followed: bool) -> Any:
        if held == edited:
            return held
        if isinstance(held, msgspec.Struct) and type(held) is type(edited):
            return self._merge_fields(keys, held, edited, followed=followed)
        if isinstance(held, dict) and isinstance(edited, dict):
            names = dict.fromkeys((*held, *edited))
            merged = {name: self._merge_entry(keys, name, held, edited, followed=followed) for name in names}
            return {name: value for name, value in merged.items() if value is not _ABSENT}
        (self.followed if followed else self.at_start).append(".".join(keys))
        return edited if followed else held

    def _merge_fields(
        self, keys: tuple[str, ...], held: msgspec.Struct, edited: msgspec.Struct, *, followed: bool
    ) -> msgspec.Struct:
        merged = {
            name: self._merge(
                (*keys, name), getattr(held, name), getattr(edited, name), followed=is_followed(kind, below=followed)
            )
            for name, kind in get_type_hints(type(held), include_extras=True).items()
            if name in held.__struct_fields__
        }
        return msgspec.structs.replace(held, **merged)

    def _merge_entry(
        self, keys: tuple[str, ...], name: str, held: dict[str, Any], edited: dict[str, Any], *, followed: bool
    ) -> Any:
        return self._merge((*keys, name), held.get(name, _ABSENT), edited.get(name, _ABSENT), followed=followed)


def is_followed(kind: Any, *, below: bool = False) -> bool:
    """Whether a field of this type, with its annotations, is followed; if it says nothing, as what it is `below`."""
    marks = (mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, _Reading))
    return next((mark.followed for mark in marks), below)
