"""Text of a call, piece by piece -> where the call ends: quotes and brackets are followed, and nothing else is read."""

import re

_TELLING = re.compile(r"'''|\"\"\"|[\"'\\{}\[\]()]")


class CallScanner:
    """Follows the nesting of one call, in JSON or as Python writes it; it does not ask whether the text is valid.

    Args:
        depth: how many brackets are open already.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._quote = self._pending = ""

    def find_end(self, piece: str) -> int:
        """The position in `piece`, the text's next piece, after the last bracket; -1 if it is not in this piece."""
        text, at = self._pending + piece, 0
        before = len(self._pending)
        self._pending = ""
        while found := _TELLING.search(text, at):
            sign, start = found[0], found.start()
            # Quotes may become three, and a backslash depends on the next character.
            if len(text) - start < (3 if sign in "\"'" else 2 if sign == "\\" else 0) and self._waits(
                sign, text[start:]
            ):
                self._pending = text[start:]
                return -1
            at = start + self._follow(sign)
            if self._depth == 0 and not self._quote:
                return at - before
        return -1

    def _waits(self, sign: str, rest: str) -> bool:
        """Whether the next character decides what this sign means."""
        return sign == "\\" or (self._quote in {"", sign * 3} and rest == sign * len(rest))

    def _follow(self, sign: str) -> int:
        """Take a sign; return its length."""
        if self._quote:
            if sign == "\\":
                return 2
            if sign.startswith(self._quote):
                length, self._quote = len(self._quote), ""
                return length
            return 1
        if sign[0] in "\"'":
            self._quote = sign
        elif sign != "\\":
            self._depth += 1 if sign in "([{" else -1
        return len(sign)
