"""Tokens of a record -> OpenAI's `logprobs`."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tg_schema import Token

UNKNOWN_LOGPROB: Final = -9999.0
"""OpenAI's value for a token whose log-probability is not known."""
HALF_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands in a token's text for a part of a character."""


class TopLogprob(msgspec.Struct, frozen=True):
    """An alternative; `bytes` is null where they are not known."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class TokenLogprob(TopLogprob, frozen=True):
    """A token of the answer with its alternatives, the most probable first."""

    top_logprobs: tuple[TopLogprob, ...]


class Logprobs(msgspec.Struct, frozen=True):
    """The tokens of a choice, or of a piece of it."""

    content: tuple[TokenLogprob, ...]
    refusal: None


def make_logprobs(tokens: Sequence[Token]) -> Logprobs | None:
    """The tokens of the text; control tokens are no part of it. None if there are no tokens."""
    shown = tuple(_make_token(token) for token in tokens if not token.special)
    return Logprobs(shown, None) if shown else None


def _make_token(token: Token) -> TokenLogprob:
    raw = _bytes_of(token.text) if token.raw_bytes is None else tuple(token.raw_bytes)
    logprob = UNKNOWN_LOGPROB if token.logprob is None else token.logprob
    texts = token.top_texts or tuple(f"token_id:{number}" for number, _ in token.top)
    tops = (
        TopLogprob(text, logprob, _bytes_of(text) if token.top_texts else None)
        for text, (_, logprob) in zip(texts, token.top, strict=False)
    )
    return TokenLogprob(token.text, logprob, raw, tuple(tops))


def _bytes_of(text: str) -> tuple[int, ...] | None:
    """Half a character appears in the text as a replacement character, which does not reveal its bytes."""
    return None if HALF_CHARACTER in text else tuple(text.encode())
