"""Texts of a request -> the same with placeholders for control tokens' names, on their way through a chat template."""

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class Plain(NamedTuple):
    """A piece of a request's text that is not read as a control token."""

    text: str


class NameGuard:
    """Keeps a request from writing control tokens.

    Args:
        names: the names of the control tokens.
    """

    def __init__(self, names: Collection[str]) -> None:
        # Replace the placeholders' own characters too, or a request could write a placeholder.
        self._names = [_OPEN, *sorted(filter(None, names), key=len, reverse=True)]
        self._firsts = {name[0] for name in self._names}

    def hide(self, value: Any) -> Any:
        """`value`, a JSON value as Python has it, with placeholders in all of its texts and keys."""
        if isinstance(value, str):
            # Replace name by name, in linear time. One pattern of all names would try each of them at every `<`.
            for number, name in enumerate(self._names if any(map(value.__contains__, self._firsts)) else ()):
                value = value.replace(name, f"{_OPEN}{number}{_CLOSE}")
            return value
        if isinstance(value, dict):
            return {self.hide(key): self.hide(inner) for key, inner in value.items()}
        return [self.hide(inner) for inner in value] if isinstance(value, list | tuple) else value

    def reveal(self, text: str) -> Iterator[str | Plain]:
        """The pieces of a rendered text. Names of control tokens that come from the request are `Plain`."""
        at = 0
        for found in _MARK.finditer(text):
            if found.start() > at:
                yield text[at : found.start()]
            at = found.end()
            if int(found[1]) < len(self._names):
                yield Plain(self._names[int(found[1])])
        if at < len(text):
            yield text[at:]
