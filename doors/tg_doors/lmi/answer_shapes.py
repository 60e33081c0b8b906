"""The objects of an answer, in LMI's shape or with TGI's names; fields that equal their default are left out."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from tg_doors import tgi


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token. The id is -1 and the log-probability null if unknown."""

    id: int
    text: str
    log_prob: float | None
    special_token: bool = False
    error_msg: str = ""


class CompatibleToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token with TGI's names."""

    id: int
    text: str
    logprob: float | None
    special: bool
    error_msg: str = ""


AnyToken = Token | CompatibleToken


class Sequence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several answers that is not the best."""

    finish_reason: str
    generated_tokens: int
    tokens: tuple[AnyToken, ...]
    generated_text: str
    top_tokens: tuple[tuple[AnyToken, ...], ...] = ()


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer ended and, if it is whole, its tokens."""

    finish_reason: str
    generated_tokens: int | None
    inputs: str | None
    tokens: tuple[AnyToken, ...] | UnsetType | None = UNSET
    prefill: tuple[AnyToken, ...] | UnsetType = UNSET
    top_tokens: tuple[tuple[AnyToken, ...], ...] = ()
    best_of_sequences: tuple[Sequence, ...] = ()


class GeneratedText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole answer, or one of a dynamic batch; `error` and `code` are those of one that failed."""

    generated_text: str
    details: Details | None = None
    error: str = ""
    code: int = 0


class TokenLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a stream. The last one has the text, and the details if they were asked for or it failed."""

    token: AnyToken
    generated_text: str | UnsetType = UNSET
    details: Details | None = None


def name_token(token: tgi.Token | tgi.PrefillToken, *, compatible: bool) -> AnyToken:
    """A token with the names of one of the two shapes."""
    special = isinstance(token, tgi.Token) and token.special
    if compatible:
        return CompatibleToken(token.id, token.text, token.logprob, special)
    return Token(token.id, token.text, token.logprob, special)


def name_tokens(tokens: Iterable[tgi.Token | tgi.PrefillToken], *, compatible: bool) -> tuple[AnyToken, ...]:
    """Convert several tokens."""
    return tuple([name_token(token, compatible=compatible) for token in tokens])


def make_error_token(message: str, *, compatible: bool) -> AnyToken:
    """The placeholder for the token at which an answer failed."""
    if compatible:
        return CompatibleToken(-1, "", -1, special=True, error_msg=message)
    return Token(-1, "", -1, special_token=True, error_msg=message)
