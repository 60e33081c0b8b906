"""Data of a configuration file -> which value an error is about, and what is left when wrong values are cut out."""

import re
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from tg_base.config.toml_positions import Keys

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class ConfigRemains:
    """What is left of a table of a file. Keys are always those of the file, whatever was cut out before.

    Args:
        table: the keys of the table; () = the whole file.
        data: what it says.
        kind: what that shall become.

    Attributes:
        data: the rest, to be converted.
    """

    def __init__(self, table: Keys, data: Any, kind: Any) -> None:
        self.data = data
        self._table = table
        self._kind = kind
        self._cut: list[Keys] = []

    @property
    def whole(self) -> bool:
        """Whether nothing was cut out."""
        return not self._cut

    def lacks(self, table: Keys) -> bool:
        """Whether something was cut out of a table, which may now lack a field that it needs."""
        return any((*self._table, *keys[:-1]) == table for keys in self._cut)

    def follow(self, path: str) -> tuple[Keys, Any]:
        """The keys of the value at one of msgspec's paths, and its type.

        msgspec names a table's free keys `...`: the first one with a wrong value is meant.
        """
        keys: Keys = ()
        data: Any = self.data
        kind: Any = self._kind
        for name, index in _STEP.findall(path):
            kind = _member(kind, name)
            key = name or (_first_wrong(data, kind) if index == "..." else index)
            keys, data = self._step(keys, data, key)
        return (*self._table, *keys), _bare(kind)

    def cut(self, keys: Keys) -> None:
        """Take out a value."""
        keys, data = keys[len(self._table) :], self.data
        for length, key in enumerate(keys[:-1]):
            data = data[self._index(keys[:length], key) if isinstance(data, list) else key]
        del data[self._index(keys[:-1], keys[-1]) if isinstance(data, list) else keys[-1]]
        self._cut.append(keys)

    def _step(self, keys: Keys, data: Any, key: str) -> tuple[Keys, Any]:
        if not isinstance(data, list):
            return (*keys, key), data[key]
        value, original = data[int(key)], int(key)
        for index in self._cut_indexes(keys):
            original += index <= original
        return (*keys, str(original)), value

    def _index(self, keys: Keys, key: str) -> int:
        return int(key) - sum(index < int(key) for index in self._cut_indexes(keys))

    def _cut_indexes(self, keys: Keys) -> list[int]:
        """Which elements of a list were cut out, in order."""
        return sorted(int(cut[-1]) for cut in self._cut if cut[:-1] == keys)


def _first_wrong(data: dict[str, Any], kind: Any) -> str:
    for key, value in data.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return key
    return next(iter(data))


def _member(kind: Any, name: str) -> Any:
    kind = _bare(kind)
    if name:
        return get_type_hints(kind, include_extras=True)[name]
    return get_args(kind)[1 if get_origin(kind) is dict else 0]


def _bare(kind: Any) -> Any:
    """Without `| None` and without constraints."""
    if get_origin(kind) in {Union, UnionType}:
        kind = next(part for part in get_args(kind) if part is not type(None))
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
