"""Thinking and its signature -> `reasoning_details`: what the provider must get back unchanged in the next turn.

OpenAI's API has no field for it. The form is OpenRouter's, which clients keep with the message.
"""

from collections.abc import Iterator
from typing import Final

from tg_gateway.dialects.chat.shapes import ReasoningDelta
from tg_schema.pieces import MAX_EVENT_BYTES, cut_text

MAX_THINKING_CHARACTERS: Final = 2 * 1024 * 1024
"""Characters of one piece of thinking kept until its signature comes; a longer one is sent without its signature."""
_TYPE: Final = "reasoning.text"


class SignedThinking:
    """Keeps the thinking of one choice until it is signed."""

    __slots__ = ("_index", "_pieces", "_size")

    def __init__(self) -> None:
        self._index = 0
        self._drop()

    def add(self, text: str) -> None:
        """More of the thinking."""
        self._size += len(text)
        if self._size <= MAX_THINKING_CHARACTERS:
            self._pieces.append(text)
        else:
            # Thinking that is cut no longer fits its signature: its provider would refuse it.
            self._pieces.clear()

    def end(self) -> None:
        """The thinking is over, and was not signed."""
        if self._size:
            self._drop()

    def sign(self, signature: str) -> Iterator[ReasoningDelta]:
        """The signed thinking and its signature, in parts that each fit into one event."""
        if self._size <= MAX_THINKING_CHARACTERS:
            *parts, last = cut_text("".join(self._pieces), MAX_EVENT_BYTES) or [""]
            for part in parts:
                yield ReasoningDelta(self._index, _TYPE, part)
            yield ReasoningDelta(self._index, _TYPE, last, signature)
            self._index += 1
        self._drop()

    def _drop(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
