"""Token bytes -> visible text: whole characters, without stop strings, with each token beside its text."""

import codecs
from collections import deque
from collections.abc import Sequence

from tg_base.llm.stop_strings import StopStrings
from tg_schema import Token

_Utf8 = codecs.getincrementaldecoder("utf-8")


class AnswerText:
    """The text of one answer.

    A character that spans several tokens comes with the last of them; bytes that are not UTF-8 become U+FFFD.

    Args:
        stops: stop strings.
        keep_stop: whether the stop string that ends the answer is shown.
        min_tokens: tokens before which no stop string is looked for.
    """

    def __init__(self, stops: Sequence[str], *, keep_stop: bool = False, min_tokens: int = 0) -> None:
        self._utf8 = _Utf8("replace")
        self._stop = StopStrings(stops, keep=keep_stop) if stops else None
        self._unwatched = min_tokens - 1
        self._tokens: deque[tuple[int, Token]] = deque()
        self._read = 0
        self._shown = 0

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stop.found if self._stop is not None else None

    def feed(self, piece: bytes, token: Token | None) -> tuple[str, tuple[Token, ...], bool]:
        """Add a token's bytes, and its data if the request asked for them.

        Returns:
            The text to show, the tokens that begin in it, and whether a stop string ended the answer.
        """
        text = self._utf8.decode(piece)
        if token is not None:
            self._tokens.append((self._read, token))
        self._read += len(text)
        if self._stop is None or self._unwatched > 0:
            self._unwatched -= 1
            return text, self._beside(text, everything=True), False
        text, stopped = self._stop.feed(text)
        return text, self._beside(text, everything=not stopped and not self._stop.held), stopped

    def flush(self) -> tuple[str, tuple[Token, ...], bool]:
        """The answer ended by itself: return the text that was held back, as `feed` does."""
        text = self._utf8.decode(b"", final=True)
        if self._stop is None:
            return text, (), False
        text, stopped = self._stop.feed(text)
        text += self._stop.flush()
        return text, self._beside(text, everything=not stopped), stopped

    def _beside(self, text: str, *, everything: bool) -> tuple[Token, ...]:
        self._shown += len(text)
        tokens = []
        # A token is reported with its first character, even while a possible stop string holds back the rest.
        while self._tokens and (everything or self._tokens[0][0] < self._shown):
            tokens.append(self._tokens.popleft()[1])
        return tuple(tokens)
