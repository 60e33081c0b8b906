"""A JSON object, piece by piece -> whether it is complete, and how long it is."""

import re
from typing import Final

_OUTSIDE: Final = re.compile(r'["\\{}\[\]]')
_INSIDE: Final = re.compile(r'["\\]')


class ObjectEnd:
    """Finds the end of the object; looks at each character once. Brackets and quotes inside strings are text.

    Attributes:
        reached: whether the object that began with the first character is complete.
        size: characters up to there; as long as it is not reached, those that came.
    """

    def __init__(self) -> None:
        self.reached = False
        self.size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> None:
        """Look at the next piece."""
        place = 0
        while place < len(text) and not self.reached:
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            found = (_INSIDE if self._quoted else _OUTSIDE).search(text, place)
            place = len(text) if found is None else found.end()
            if found is not None:
                self._meet(found[0])
        self.size += place

    def _meet(self, mark: str) -> None:
        if mark == "\\":
            self._escaped = True
        elif mark == '"':
            self._quoted = not self._quoted
        else:
            self._depth += 1 if mark in "{[" else -1
            self.reached = self._depth == 0
