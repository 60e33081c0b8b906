"""Model's text -> text up to a stop string; a possible beginning of one is held back if it may not be shown."""

from collections.abc import Sequence


class StopStrings:
    """Watches one answer. The result does not depend on how the text is split: the stop string that ends first wins.

    Args:
        stops: the stop strings.
        keep: whether the stop string that ended the answer is shown; then nothing has to be held back.

    Attributes:
        found: the stop string that ended the answer.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        self.found: str | None = None
        self._stops = tuple(stops)
        self._keep = keep
        self._tail = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Add text; return the text that may be shown, and whether a stop string ended the answer."""
        shown = len(self._tail) if self._keep else 0
        text = self._tail + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._tail = ""
            end, start = min(found)
            self.found = text[start:end]
            return text[shown : end if self._keep else start], True
        cut = len(text) - self._overlap(text)
        self._tail = text[cut:]
        return text[shown:] if self._keep else text[:cut], False

    def _overlap(self, text: str) -> int:
        """Length of the longest end of `text` that is the beginning of a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:length]):
                    longest = length
                    break
        return longest

    def flush(self) -> str:
        """The answer ended without a stop string: return the text that was held back."""
        text, self._tail = self._tail, ""
        return "" if self._keep else text

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return 0 if self._keep else len(self._tail)
