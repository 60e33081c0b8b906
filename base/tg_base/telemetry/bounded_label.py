"""Names made up by others -> labels of metrics: bounded in number, and valid on a page of metrics."""

from collections.abc import Callable
from typing import Final

MAX_LABEL_VALUES: Final = 1_000
"""Names that get a label of their own; Prometheus keeps a series for each one for ever."""
MAX_LABEL_CHARACTERS: Final = 100
OTHER: Final = "other"
"""The label of all further names."""


class BoundedLabel:
    """The first names get labels of their own. A configured name always has its label: clients cannot crowd it out.

    Args:
        is_configured: whether an operator named it.
    """

    def __init__(self, is_configured: Callable[[str], bool] = lambda _: False) -> None:
        self._is_configured = is_configured
        self._known: dict[str, str] = {"": ""}
        self._foreign = 0

    def bound(self, name: str) -> str:
        """The name as a label: unchanged, its beginning, or OTHER."""
        if (known := self._known.get(name)) is not None:
            return known
        name = name[:MAX_LABEL_CHARACTERS]
        if name not in self._known:
            if not self._is_configured(name):
                if self._foreign >= MAX_LABEL_VALUES:
                    return OTHER
                self._foreign += 1
            self._known[name] = make_printable(name)
        return self._known[name]


def make_printable(name: str) -> str:
    """The beginning of a name, with "?" for invisible characters.

    A NUL ends the whole page for Prometheus, and a lone surrogate makes it unwritable.
    """
    name = name[:MAX_LABEL_CHARACTERS]
    return name if name.isprintable() else "".join(each if each.isprintable() else "?" for each in name)
