"""Tokens of a record -> TGI's tokens, whose texts together are the text: a character comes with its last token."""

import codecs
from collections.abc import Sequence

import msgspec

from tg_doors.tgi.answer_shapes import PrefillToken, Token
from tg_gateway.dialects.chat import HALF_CHARACTER
from tg_schema import Token as RecordToken

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
        """What the next token adds to the text. A control token adds nothing: its text is its name."""
        # Only a token with a partial character, or one after such a token, needs the decoder.
        if token.special or (token.raw_bytes is None and not self._open):
            return token.text
        text = self._utf8.decode(token.text.encode() if token.raw_bytes is None else token.raw_bytes)
        self._open = bool(self._utf8.getstate()[0])
        return text

    def end(self) -> str:
        """The rest of a text that ends within a character: U+FFFD, else ""."""
        return self._utf8.decode(b"", final=True)


def make_token(token: RecordToken, text: str) -> Token:
    """A token of the answer, with its text there."""
    return Token(token.id, text, token.logprob, token.special)


def make_tokens(tokens: Sequence[RecordToken], whole: str) -> tuple[Token, ...]:
    """The tokens of an answer with this text."""
    texts = TokenTexts()
    made = [make_token(token, texts.decode(token)) for token in tokens]
    # If the text ends within a character, its U+FFFD belongs to the last token; only the end token may follow.
    place = next((place for place in range(len(made) - 1, -1, -1) if not made[place].special), None)
    if place is not None:
        text = made[place].text + (texts.end() if whole.endswith(HALF_CHARACTER) else "")
        before = sum([len(token.text) for token in made[:place] if not token.special])
        # A stop string may begin or end within the token, and in a stream the rest of it never comes. A token that
        # stops the answer by its id adds nothing: the text ends before it.
        if before <= len(whole) and text.startswith(whole[before:]):
            text = whole[before:]
        made[place] = msgspec.structs.replace(made[place], text=text)
    return tuple(made)


def make_alternatives(token: RecordToken) -> tuple[Token, ...]:
    """The most probable tokens at the place of this one, the best first; a text that is not known is ""."""
    texts = token.top_texts or ("",) * len(token.top)
    pairs = zip(token.top, texts, strict=False)
    return tuple([Token(number, text, logprob, special=False) for (number, logprob), text in pairs])


def make_prefill(tokens: Sequence[RecordToken]) -> tuple[PrefillToken, ...]:
    """The tokens of the inputs."""
    texts = TokenTexts()
    return tuple([PrefillToken(token.id, texts.decode(token), token.logprob) for token in tokens])
