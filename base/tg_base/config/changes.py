"""Active and edited configuration -> what takes effect at once, and what needs a restart."""

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
"""The type of a field whose edits take effect while a process runs, with all fields below it unless `AtStart`."""

AtStart = Annotated[Value, _Reading(followed=False)]
"""The type of a field that is read only at the start, although the field above it is followed. A field without any
mark, on itself or above it, is read only at the start too."""

SET_BY_READER = msgspec.Meta(extra={"set_by_reader": True})
"""Marks the type of a field that files cannot have: the reader sets it."""

_ABSENT: Any = object()


class Changes(Generic[Table]):
    """The differences between two configurations, and their merge.

    Args:
        held: the active configuration.
        edited: the file's present content.

    Attributes:
        in_force: `held` with the followed values of `edited`.
        followed: dotted keys of the different values that take effect at once.
        at_start: dotted keys of the different values that need a restart.
    """

    def __init__(self, held: Table, edited: Table) -> None:
        self.followed: list[str] = []
        self.at_start: list[str] = []
        self.in_force: Table = self._merge((), held, edited, followed=False)

    def _merge(self, keys: tuple[str, ...], held: Any, edited: Any, *, followed: bool) -> Any:
        if held == edited:
            return held
        # Entry by entry, so that the log names the one model or flow that was edited, not the whole table.
        if isinstance(held, dict) and isinstance(edited, dict):
            names = dict.fromkeys((*held, *edited))
            merged = {
                name: self._merge((*keys, name), held.get(name, _ABSENT), edited.get(name, _ABSENT), followed=followed)
                for name in names
            }
            return {name: value for name, value in merged.items() if value is not _ABSENT}
        followed = followed and _follows_edits(held) and _follows_edits(edited)
        if isinstance(held, msgspec.Struct) and type(held) is type(edited):
            return self._merge_fields(keys, held, edited, followed=followed)
        (self.followed if followed else self.at_start).append(".".join(keys))
        return edited if followed else held

    def _merge_fields(
        self, keys: tuple[str, ...], held: msgspec.Struct, edited: msgspec.Struct, *, followed: bool
    ) -> msgspec.Struct:
        written = dict(zip(held.__struct_fields__, held.__struct_encode_fields__, strict=True))
        merged = {
            name: self._merge(
                # The part that the reader sets also has names from the file, because doors' tables are next to the
                # fields.
                keys if SET_BY_READER in getattr(kind, "__metadata__", ()) else (*keys, written[name]),
                getattr(held, name),
                getattr(edited, name),
                followed=is_followed(kind, below=followed),
            )
            # The marks are extras, which this call drops without that argument.
            for name, kind in get_type_hints(type(held), include_extras=True).items()
            if name in held.__struct_fields__
        }
        return msgspec.structs.replace(held, **merged)


def _follows_edits(value: Any) -> bool:
    """Whether a value may change while a process runs; a whole flow may come or go if all its services may."""
    if isinstance(value, dict):
        return all(map(_follows_edits, value.values()))
    return bool(getattr(value, "followed", True))


def is_followed(kind: Any, *, below: bool = False) -> bool:
    """Whether a field of this annotated type is followed; without a mark it inherits that of its parent (`below`)."""
    marks = (mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, _Reading))
    return next((mark.followed for mark in marks), below)
