"""Text that was sent of an answer -> the tokens that the model goes on after."""

from collections.abc import Sequence
from typing import Final

from tg_llama.core import Model
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

MAX_WORD_TOKENS: Final = 32
"""Tokens at the end of a text, among which the beginning of a word is looked for."""
MAX_CUT_CHARACTERS: Final = 256 * 1024
"""Characters that are cut at most to learn what stop strings would change. More are refused."""


def cut_begun(model: Model, request: TextCompletionRequest, limit: int) -> tuple[int, ...]:
    """The tokens of the beginning of an answer: those that it was written in, if they were the usual ones.

    Raises:
        BadRequest: the model's tokens do not have exactly this text, or certainly more than `limit` tokens have it, or
            it may end within one, of which the rest was held back as the beginning of a stop string.
    """
    text = "".join(request.continuation)
    ids = _cut(model, text)[1] if len(text) <= limit * model.longest_piece else None
    if ids is None or not _ends_token(model, ids, request.sampling):
        raise BadRequest("continuation: the model's tokens do not end with this text; ask for the whole answer")
    return tuple(ids)


def _cut(model: Model, text: str) -> tuple[str, list[int] | None]:
    """A text as its tokenizer wants it, and its tokens; None = they do not have exactly this text."""
    # Some tokenizers add a space before a text, where the first token of the answer has its own.
    for begun in (text, text.removeprefix(" ")):
        ids = model.tokenize(begun, special=False)
        # Bytes that are not UTF-8 were sent as U+FFFD.
        if "\ufffd" not in text and _read(model, ids) == text:
            return begun, ids
    return text, None


def _read(model: Model, ids: Sequence[int]) -> str:
    return b"".join([model.pieces[token] for token in ids]).decode("utf-8", "replace")


def _ends_token(model: Model, ids: list[int], sampling: Sampling | None) -> bool:
    """Whether a text ends with a token, whatever of a stop string may have followed it."""
    stops = () if sampling is None or sampling.keep_stop else sampling.stop
    held = {stop[:end] for stop in stops for end in range(1, len(stop) + 1)}
    if not held:
        return True
    end = ids[_find_word(model, ids) :]
    begun, cut = _cut(model, _read(model, end))
    fits = len(held) * len(begun) + sum(map(len, held)) <= MAX_CUT_CHARACTERS
    return fits and cut == end and all(model.tokenize(begun + more, special=False)[: len(end)] == end for more in held)


def _find_word(model: Model, ids: Sequence[int]) -> int:
    """The token that begins the last word: what follows changes none before it. 0 = all must be cut again."""
    for first in range(len(ids) - 1, max(len(ids) - MAX_WORD_TOKENS, 0), -1):
        seam = model.pieces[ids[first - 1]][-1:] + model.pieces[ids[first]][:1]
        # Tokenizers cut there already, unless a token spans it.
        if seam.endswith(b" ") and not seam.isspace() and not any(seam in piece for piece in model.pieces):
            return first
    return 0
