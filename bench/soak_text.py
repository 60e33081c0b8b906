"""What the soak's provider says and its clients expect: a text that tells whose it is, and which call it came from.

Each piece names the question, the provider's call and its own place, so that a hole, a repeated piece, another
stream's piece or two calls stitched together all show; and its ends are what breaks careless framing.
"""

import re
from dataclasses import dataclass

SPICE = (" ", " €\n", "\n\ndata: {}\n\n", " \U0001f600\u2028", '"}\\', "\r\n", " </s>\u0085", "ä ")
_QUESTION = re.compile(rb"number=(\d+) pieces=(\d+) gap=(\d+) padding=(\d+)")
_BEGINNING = re.compile(r"\d+\.([0-9a-f]{8})\.0")


@dataclass(frozen=True)
class Question:
    """What a client asks: how many pieces, how many ms apart, each with so many bytes of padding."""

    number: int
    pieces: int
    gap: int
    padding: int = 0

    @property
    def prompt(self) -> str:
        """As it travels."""
        return f"number={self.number} pieces={self.pieces} gap={self.gap} padding={self.padding}"

    @classmethod
    def of(cls, body: bytes) -> "Question | None":
        """The question in a request to the provider."""
        found = _QUESTION.search(body)
        return None if found is None else cls(*(int(value) for value in found.groups()))

    def piece(self, call: str, index: int) -> str:
        """One piece of the answer of one call of the provider."""
        return f"{self.number}.{call}.{index}{'x' * self.padding}{SPICE[index % len(SPICE)]}"

    def answer(self, call: str) -> str:
        """The whole answer."""
        return "".join(self.piece(call, index) for index in range(self.pieces))

    def right(self, text: str, *, whole: bool) -> bool:
        """Whether a text is an answer of one single call, or where it is not `whole` the beginning of one."""
        if not text:
            return not whole
        found = _BEGINNING.match(text)
        expected = "" if found is None else self.answer(found[1])
        return text == expected if whole else expected.startswith(text)
