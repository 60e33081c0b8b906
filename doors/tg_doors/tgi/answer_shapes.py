"""The objects of an answer in TGI's shape, and its tokens; a field with its default's value is left out."""

import codecs
from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec

from tg_schema import FinishReason
from tg_schema import Token as RecordToken
from tg_schema.errors import ContentFilter


class PrefillToken(msgspec.Struct, frozen=True):
    """A token of the inputs; the first one has no log-probability."""

    id: int
    text: str
    logprob: float | None


class Token(PrefillToken, frozen=True):
    """A token. The id is -1 and the log-probability null if unknown."""

    special: bool


class BestOfSequence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several answers that is not the best."""

    generated_text: str
    finish_reason: str
    generated_tokens: int
    seed: int | None
    prefill: tuple[PrefillToken, ...]
    tokens: tuple[Token, ...]
    top_tokens: tuple[tuple[Token, ...], ...] = ()


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer ended."""

    finish_reason: str
    generated_tokens: int
    seed: int | None


class Details(End, frozen=True):
    """The details of a whole answer. TGI's clients require `prefill`, even if it is empty."""

    prefill: tuple[PrefillToken, ...]
    tokens: tuple[Token, ...]
    best_of_sequences: tuple[BestOfSequence, ...] | None = None
    top_tokens: tuple[tuple[Token, ...], ...] = ()


class GeneratedText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole answer."""

    generated_text: str
    details: Details | None = None


class StreamDetails(End, frozen=True):
    """How a stream ended."""

    input_length: int


class TokenEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a stream. Only the last one has the text, and the details if the request asked for them."""

    index: int
    token: Token
    generated_text: str | None = msgspec.field(default_factory=type(None))
    details: StreamDetails | None = msgspec.field(default_factory=type(None))
    top_tokens: tuple[Token, ...] = ()


Ending = Literal["length", "eos_token", "stop_sequence"]
"""All reasons that TGI has."""


def name_ending(reason: FinishReason | None, stopped_by: str | int | None, text: str, stops: Sequence[str]) -> Ending:
    """TGI's `finish_reason`.

    Args:
        reason: the record's `finish_reason`.
        stopped_by: the stop string or id in the record that ended the answer; None = its own end, or unknown.
        text: the text of the answer, which ends with the stop string that ended it.
        stops: the requested stop strings.

    Raises:
        ContentFilter: the provider's filter ended the answer, and TGI has no finish reason for that.
    """
    match reason:
        case "length":
            return "length"
        case "content_filter":
            raise ContentFilter("the provider's filter ended the answer; ask for something else")
        case "stop" | "tool_calls" | None:
            stopped = stopped_by is not None or text.endswith(tuple(stops))
            return "stop_sequence" if stopped else "eos_token"
        case _:
            assert_never(reason)


_Utf8 = codecs.getincrementaldecoder("utf-8")


class TokenTexts:
    """The texts of one answer's tokens, one after the other.

    A record says U+FFFD for half a character. Here its first half is "", and its second half is the whole character, so
    that a client that concatenates them reads the text.
    """

    def __init__(self) -> None:
        self._utf8 = _Utf8("replace")
        self._open = False

    def decode(self, token: RecordToken) -> str:
        """The text that the next token adds. A control token adds nothing: its text is its name."""
        # Only a token with a partial character, or one after such a token, needs the decoder.
        if token.special or (token.raw_bytes is None and not self._open):
            return token.text
        text = self._utf8.decode(token.data)
        self._open = bool(self._utf8.getstate()[0])
        return text


def make_token(token: RecordToken, text: str) -> Token:
    """A token of the answer, with its text there."""
    return Token(token.id, text, token.logprob, token.special)


def make_alternatives(token: RecordToken) -> tuple[Token, ...]:
    """The most probable tokens at the place of this one, the best first; a text that is not known is ""."""
    texts = token.top_texts or ("",) * len(token.top)
    pairs = zip(token.top, texts, strict=False)
    return tuple([Token(number, text, logprob, special=False) for (number, logprob), text in pairs])


def make_prefill(tokens: Sequence[RecordToken]) -> tuple[PrefillToken, ...]:
    """The tokens of the inputs."""
    texts = TokenTexts()
    return tuple([PrefillToken(token.id, texts.decode(token), token.logprob) for token in tokens])
