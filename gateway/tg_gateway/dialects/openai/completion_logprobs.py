"""Tokens of an answer's records -> `logprobs` of a completion, with the place of each in the text."""

import codecs
from collections.abc import Sequence

import msgspec

from tg_gateway.dialects.chat import HALF_CHARACTER, UNKNOWN_LOGPROB
from tg_schema import Token
from tg_schema.completion import NO_TOKEN_ID

Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class CompletionLogprobs(msgspec.Struct, frozen=True):
    r"""The tokens of a text, one list for each thing that is known of them.

    Attributes:
        tokens: their texts; half a character as its bytes, such as `bytes:\xe2\x82`.
        token_logprobs: null for the first token of a prompt.
        top_logprobs: the likeliest texts and the token's own; null for the first token of a prompt.
        text_offset: characters of the choice's text before each.
    """

    text_offset: tuple[int, ...]
    token_logprobs: tuple[float | None, ...]
    tokens: tuple[str, ...]
    top_logprobs: tuple[dict[str, float] | None, ...]


class TokenTable:
    """The tokens of one answer. A token that begins within a character has the place of that character."""

    def __init__(self) -> None:
        self._utf8 = Utf8Decoder("replace")
        self._read = 0

    def read(self, prompt: Sequence[Token], answer: Sequence[Token]) -> CompletionLogprobs | None:
        """The next tokens; control tokens are no part of the text. None if there are no tokens.

        Args:
            prompt: tokens of the prompt, which come before the answer's.
            answer: tokens of the answer.
        """
        shown = [(token, True) for token in prompt if not token.special]
        shown += [(token, False) for token in answer if not token.special]
        if not shown:
            return None
        return CompletionLogprobs(
            tuple(self._place(token) for token, _ in shown),
            # A prompt's first token has no log-probability; for answers the SDKs require numbers.
            tuple(
                UNKNOWN_LOGPROB if token.logprob is None and not of_prompt else token.logprob
                for token, of_prompt in shown
            ),
            tuple(_text_of(token) for token, _ in shown),
            tuple(_tops_of(token, of_prompt=of_prompt) for token, of_prompt in shown),
        )

    def _place(self, token: Token) -> int:
        place = self._read
        self._read += len(self._utf8.decode(token.data))
        return place


def _text_of(token: Token) -> str:
    if HALF_CHARACTER not in token.text or token.raw_bytes is None:
        return token.text
    # OpenAI's way to show a part of a character; JSON has no bytes.
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw_bytes)


def _tops_of(token: Token, *, of_prompt: bool) -> dict[str, float] | None:
    """The alternatives, and the token itself if it is not among them."""
    if token.logprob is None:
        return None if of_prompt else {}
    named = bool(token.top_texts) or not token.top
    texts = token.top_texts if named else tuple(f"token_id:{number}" for number, _ in token.top)
    tops: dict[str, float] = {}
    own = _text_of(token) if named else f"token_id:{token.id}"
    for text, (number, logprob) in zip(texts, token.top, strict=False):
        # Two tokens may have one text. The more probable one comes first, and stays.
        tops.setdefault(own if number == token.id != NO_TOKEN_ID else text, logprob)
    tops.setdefault(own, token.logprob)
    return tops
