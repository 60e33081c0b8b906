"""Token bytes -> allowed next tokens, so that an answer is UTF-8: a grammar of characters cannot ensure that."""

from collections.abc import Sequence

import numpy as np

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def incomplete(raw: bytes) -> bytes | None:
    """The bytes of the incomplete character at the end of `raw`; None if `raw` can never become UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return raw[error.start :] if error.reason == "unexpected end of data" else None
    return b""


class Utf8Tokens:
    """Which tokens of a vocabulary can continue an incomplete character."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._starting: Mask = np.array([incomplete(piece) is not None for piece in pieces])
        self._continuing = [number for number, piece in enumerate(pieces) if piece and 0x80 <= piece[0] < 0xC0]

    def after(self, unfinished: bytes) -> Mask:
        """The tokens that may follow a text that ends with `unfinished`, the first bytes of a character."""
        if not unfinished:
            return self._starting
        mask = np.zeros_like(self._starting)
        mask[[token for token in self._continuing if incomplete(unfinished + self._pieces[token]) is not None]] = True
        return mask
