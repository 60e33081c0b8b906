"""A long text in pieces -> its beginning."""


class Shortened:
    """Passes the beginning of a text on, and counts the rest.

    Args:
        characters: how many at most; None = the whole text.
        lines: how many at most.

    Attributes:
        left_out: how many characters were dropped, without blanks at the ends of pieces.
    """

    def __init__(self, characters: int | None, lines: int) -> None:
        self.left_out = 0
        self._characters = characters
        self._lines = lines
        self._cut = False

    def take(self, text: str) -> str:
        """The part of the next piece that is shown."""
        if self._characters is None:
            return text
        through = "" if self._cut else "\n".join(text[: self._characters].split("\n", self._lines)[: self._lines])
        self._cut = self._cut or through != text
        self._characters -= len(through)
        self._lines -= through.count("\n")
        self.left_out += len(text[len(through) :].strip())
        return through
