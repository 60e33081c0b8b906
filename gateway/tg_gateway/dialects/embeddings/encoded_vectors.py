"""Vectors as JSON, in the order of their inputs, within the bound of one answer."""

from typing import Final

from tg_schema.errors import TooLarge

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all vectors of one answer, as JSON."""


class EncodedVectors:
    """Encodes each vector when it comes, so that the end of a long list does not take long.

    Args:
        count: the count of the inputs.
    """

    def __init__(self, count: int) -> None:
        self._encoded = [b""] * count
        self._size = 0

    def add(self, number: int, encoded: bytes) -> None:
        """The vector of an input.

        Raises:
            TooLarge: all together are larger than an answer may be.
        """
        self._size += len(encoded)
        if self._size > MAX_ANSWER_BYTES:
            # Nobody reads them any more, and the stream may take a while to end.
            self._encoded.clear()
            raise TooLarge(f"the embeddings have more than {MAX_ANSWER_BYTES} bytes; ask for fewer at a time")
        self._encoded[number] = encoded

    def join(self) -> bytes:
        """All, with commas between them."""
        return b",".join(self._encoded)
