"""The objects of an answer, in LMI's shape or with TGI's names; fields that equal their default are left out."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from tg_doors import tgi

Reason = Literal["length", "eos_token", "stop_sequence", "error"]


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token with LMI's names; with the operator's `tgi_compat`, with TGI's (`logprob` and `special`).

    The id is -1 and the log-probability null if unknown.
    """

    id: int
    text: str
    log_prob: float | UnsetType | None = UNSET
    special_token: bool = False
    logprob: float | UnsetType | None = UNSET
    special: bool | UnsetType = UNSET
    error_msg: str = ""


class Sequence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several answers that is not the best."""

    finish_reason: Reason
    generated_tokens: int
    tokens: tuple[Token, ...]
    generated_text: str
    top_tokens: tuple[tuple[Token, ...], ...] = ()


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer ended and, if it is whole, its tokens."""

    finish_reason: Reason
    generated_tokens: int | None
    inputs: str | None
    tokens: tuple[Token, ...] | UnsetType | None = UNSET
    prefill: tuple[Token, ...] | UnsetType = UNSET
    top_tokens: tuple[tuple[Token, ...], ...] = ()
    best_of_sequences: tuple[Sequence, ...] = ()


class GeneratedText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole answer, or one answer of a dynamic batch; only a failed answer has `error` and `code`."""

    generated_text: str
    details: Details | None = None
    error: str = ""
    code: int = 0


class TokenLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line, or an event. The last one has the text, and the details if they were requested or the answer failed.

    The same holds for the only line of a stream that failed at once.
    """

    token: Token
    generated_text: str | UnsetType = UNSET
    details: Details | None = None


def name_token(token: tgi.Token | tgi.PrefillToken, *, compatible: bool, error_msg: str = "") -> Token:
    """A token with the names of one of the two shapes."""
    special = isinstance(token, tgi.Token) and token.special
    if compatible:
        return Token(token.id, token.text, logprob=token.logprob, special=special, error_msg=error_msg)
    return Token(token.id, token.text, token.logprob, special, error_msg=error_msg)


def name_tokens(tokens: Iterable[tgi.Token | tgi.PrefillToken], *, compatible: bool) -> tuple[Token, ...]:
    """Convert several tokens."""
    return tuple([name_token(token, compatible=compatible) for token in tokens])
