"""A call's arguments, piece by piece -> whether their JSON object is complete."""

import re
from typing import Final

_OUTSIDE: Final = re.compile(r'["{}\[\]]')
_INSIDE: Final = re.compile(r'["\\]')


class ArgumentsEnd:
    """Finds the end of the object; looks at each character once.

    Attributes:
        reached: whether the object that began with the first character is complete.
    """

    def __init__(self) -> None:
        self.reached = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> None:
        """Look at the next piece."""
        place = 0
        while place < len(text):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            found = (_INSIDE if self._quoted else _OUTSIDE).search(text, place)
            if found is None:
                return
            place = found.end()
            self._meet(found[0])

    def _meet(self, mark: str) -> None:
        if mark == "\\":
            self._escaped = True
        elif mark == '"':
            self._quoted = not self._quoted
        else:
            self._depth += 1 if mark in "{[" else -1
            self.reached = self.reached or self._depth == 0
