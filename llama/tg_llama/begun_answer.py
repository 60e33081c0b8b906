"""The part of an answer that was already sent -> its tokens, after which the model continues."""

from collections.abc import Sequence
from typing import Final

from tg_llama.core import Model
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

MAX_WORD_TOKENS: Final = 32
"""Most tokens at the end of a text that are searched for the beginning of its last word."""
MAX_CUT_CHARACTERS: Final = 256 * 1024
"""Most characters that are tokenized again to learn what stop strings would change. A request for more is refused."""


def cut_begun(model: Model, request: TextCompletionRequest, limit: int) -> tuple[int, ...]:
    """The tokens of the sent part of an answer, by the model's tokenizer. Most answers were generated in these tokens.

    Raises:
        BadRequest: the tokenizer does not give exactly this text, or certainly more than `limit` tokens; or the text
            may end within a token whose rest was held back as the possible beginning of a stop string.
    """
    text = "".join(request.continuation)
    ids = _cut(model, text)[1] if len(text) <= limit * model.longest_piece else None
    if ids is None or not _ends_token(model, ids, request.sampling):
        raise BadRequest("continuation: the model's tokens do not end with this text; ask for the whole answer")
    return tuple(ids)


def _cut(model: Model, text: str) -> tuple[str, list[int] | None]:
    """The text as the tokenizer wants it, and its tokens; None = the tokens do not give exactly this text."""
    # Some tokenizers add a space before a text; the answer's first token has that space of its own.
    for begun in (text, text.removeprefix(" ")):
        ids = model.tokenize(begun, special=False)
        # Bytes that are not UTF-8 were sent as U+FFFD.
        if "\ufffd" not in text and _read(model, ids) == text:
            return begun, ids
    return text, None


def _read(model: Model, ids: Sequence[int]) -> str:
    return b"".join([model.pieces[token] for token in ids]).decode("utf-8", "replace")


def _ends_token(model: Model, ids: list[int], sampling: Sampling | None) -> bool:
    """Whether the text ends at the end of a token, whichever part of a stop string was held back after it."""
    stops = () if sampling is None or sampling.keep_stop else sampling.stop
    held = {stop[:end] for stop in stops for end in range(1, len(stop) + 1)}
    if not held:
        return True
    end = ids[_find_word(model, ids) :]
    begun, cut = _cut(model, _read(model, end))
    fits = len(held) * len(begun) + sum(map(len, held)) <= MAX_CUT_CHARACTERS
    return fits and cut == end and all(model.tokenize(begun + more, special=False)[: len(end)] == end for more in held)


def _find_word(model: Model, ids: Sequence[int]) -> int:
    """The index of the token that begins the last word: later text changes no token before it. 0 = none was found."""
    for first in range(len(ids) - 1, max(len(ids) - MAX_WORD_TOKENS, 0), -1):
        seam = model.pieces[ids[first - 1]][-1:] + model.pieces[ids[first]][:1]
        # Every tokenizer splits before a word, unless a token spans the blank and the word.
        if seam.endswith(b" ") and not seam.isspace() and not any(seam in piece for piece in model.pieces):
            return first
    return 0
