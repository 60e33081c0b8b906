"""JSON text in pieces -> where its object ends."""

import re

_TELLING = re.compile(r'["\\{}\[\]]')


class CallScanner:
    """Follows the nesting of one value; it does not ask whether what stands between the brackets is valid.

    Args:
        depth: how many brackets are open already.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._quoted = False
        self._escaped = False

    def find_end(self, piece: str) -> int:
        """The position in `piece`, the next one of the text, after the last bracket; -1 if that is not in it."""
        escaped_at = 0 if self._escaped else -1
        for found in _TELLING.finditer(piece):
            at, character = found.start(), found[0]
            if at == escaped_at:
                continue
            if character == "\\":
                escaped_at = at + 1 if self._quoted else -1
            elif character == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if character in "{[" else -1
                if self._depth == 0:
                    return at + 1
        if piece:
            self._escaped = escaped_at == len(piece)
        return -1


class JsonArguments:
    """Reads the arguments of one call, which are one JSON value: their text is passed on as it is."""

    def __init__(self) -> None:
        self._scanner = CallScanner()

    def read(self, text: str) -> tuple[str, str | None]:
        """Add text; return the JSON text that it makes, and what comes after the arguments, None while they go on."""
        end = self._scanner.find_end(text)
        return (text, None) if end < 0 else (text[:end], text[end:])


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is the beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
