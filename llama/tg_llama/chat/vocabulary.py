"""Text of a prompt -> tokens: what a model must offer for that, whichever engine evaluates it."""

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """A model's tokens, and its chat template."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of each token; b"" for control tokens."""

    @property
    def longest_piece(self) -> int:
        """The most bytes of a token."""

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template; None if it has none."""

    @property
    def begin(self) -> int | None:
        """The token at the beginning of every prompt; None if the model needs none."""

    @property
    def begin_text(self) -> str:
        """A template's `bos_token`."""

    @property
    def end_text(self) -> str:
        """A template's `eos_token`."""

    def special_text(self, token: int) -> str:
        """The text of `token` in a template."""

    def attributes(self, token: int) -> int:
        """The flags `LLAMA_TOKEN_ATTR_*` of `token`."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """The tokens of `text`; with `special`, names of control tokens become control tokens."""
