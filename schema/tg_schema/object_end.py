"""A JSON object, or a call as Python writes it, piece by piece -> whether it is complete, and how long it is."""

import re
from typing import Final

_JSON: Final = re.compile(r'["\\{}\[\]]'), re.compile(r'["\\]')
_PYTHON: Final = re.compile(r"'''|\"\"\"|[\"'\\{}\[\]()]"), re.compile(r"'''|\"\"\"|[\"'\\]")
"""The signs that matter outside and inside a text."""


class ObjectEnd:
    """Finds the end of the object; looks at each character once. Brackets and quotes inside texts are text.

    It does not ask whether the object is valid.

    Args:
        depth: how many brackets are open already.
        python: whether it is a call as Python writes it, which has round brackets and other quotes too.

    Attributes:
        reached: whether the object is complete.
        size: characters up to the object's end; before that is reached, all characters so far.
    """

    def __init__(self, depth: int = 0, *, python: bool = False) -> None:
        self.reached = False
        self.size = 0
        self._signs = _PYTHON if python else _JSON
        self._depth = depth
        self._quote = self._pending = ""

    def feed(self, piece: str) -> int:
        """Look at the next piece; returns the position in it after the last bracket, -1 if that is not in it."""
        if self.reached:
            return -1
        text, at = self._pending + piece, 0
        before, self._pending = len(self._pending), ""
        while found := self._signs[bool(self._quote)].search(text, at):
            sign, start = found[0], found.start()
            if self._waits(sign, text[start : start + 3]):
                self._pending = text[start:]
                break
            at = start + self._follow(sign)
            if self._depth == 0 and sign in "}])":
                self.reached = True
                self.size += at - before
                return at - before
        self.size += len(piece)
        return -1

    def _waits(self, sign: str, rest: str) -> bool:
        """Whether the meaning of this sign depends on the next characters: an escape, or the first of three quotes."""
        if sign == "\\":
            return len(rest) < 2
        return len(rest) < 3 and rest == sign * len(rest) and self._quote in {"", sign * 3} and sign in "\"'"

    def _follow(self, sign: str) -> int:
        """Take a sign; return its length."""
        if sign == "\\":
            return 2
        if self._quote:
            if not sign.startswith(self._quote):
                return 1
            length, self._quote = len(self._quote), ""
            return length
        if sign[0] in "\"'":
            self._quote = sign
        else:
            self._depth += 1 if sign in "([{" else -1
        return len(sign)
