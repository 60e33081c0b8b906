"""Grammar of an answer -> matcher, which computes the tokens of one model that may come next."""

import re
import threading
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from tg_schema.errors import BadRequest

MAX_COMPILED_GRAMMARS = 32
"""Grammars of one model that are kept compiled, at most."""

MAX_LEXER_STATES = 50_000
"""Most states of one grammar; a state takes up to 2 kB."""

MAX_READINGS = 5000
"""Most simultaneous positions in a grammar: an object with 1000 optional properties needs 4000."""

_LIMITS = LLParserLimits(
    max_lexer_states=MAX_LEXER_STATES,
    max_items_in_row=MAX_READINGS,
    initial_lexer_fuel=3_000_000,
    verbose_errors=False,
)
"""Besides these, llguidance limits compiling (to tens of milliseconds) and each token (to a few milliseconds)."""


_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_HEAD = '%llguidance {"no_forcing": true}\n'
"""Let the model choose the tokens of forced text. By default llguidance would choose them with the tokenizer."""


class _Vocabulary:
    """The interface through which llguidance reads a vocabulary. llguidance defines its names."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Collection[int], end: int) -> None:
        self.tokens = list(tokens)
        self.special_token_ids = sorted(special)
        self.eos_token_id = end

    def __call__(self, _text: str) -> list[int]:
        """Required by llguidance for forced text, which is not used here."""
        return []


class TokenGrammars:
    """The compiled grammars of one model. Any thread may call this; a matcher belongs to one thread at a time.

    Args:
        pieces: the bytes of each token; b"" for tokens without text, which a grammar allows only if it names them.
        end_tokens: the tokens that are allowed exactly where a grammar may end.

    Attributes:
        compile: compiles a grammar, so that `start` takes microseconds. The first time it blocks for up to a second.
            Raises BadRequest: the grammar cannot be read, or is too large.
    """

    def __init__(self, pieces: Sequence[bytes], end_tokens: Collection[int]) -> None:
        self._pieces = pieces
        self._end_tokens = sorted(end_tokens)
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self.compile = lru_cache(MAX_COMPILED_GRAMMARS)(self._compile_anew)

    def start(self, grammar: str) -> Any:
        """An `LLMatcher` at the beginning of an answer. Raises as `compile`."""
        return self.compile(grammar).deep_copy()

    def clear(self) -> None:
        """Forget the compiled grammars. One that has exceeded a limit would exceed it again in the next answer."""
        self.compile.cache_clear()

    def _compile_anew(self, grammar: str) -> Any:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._pieces, self._end_tokens)
        matcher = LLMatcher(self._tokenizer, _HEAD + grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise BadRequest("the form of the answer cannot be turned into a grammar; make it simpler")
        return matcher


def take_begun(matcher: Any, token: int) -> None:
    """Let a matcher consume a token of an answer that is continued.

    Raises:
        BadRequest: the text so far does not match the grammar.
    """
    if not matcher.consume_token(token):
        raise BadRequest("continuation: the text is not of the form that is asked for; ask for the whole answer")


def _tokenizer(pieces: Sequence[bytes], end_tokens: Sequence[int]) -> LLTokenizer:
    special = {token for token, piece in enumerate(pieces) if not piece} | set(end_tokens)
    # Give each a unique name: llguidance keeps only one of several tokens with the same bytes.
    names = [b"<%d>" % token if token in special else piece for token, piece in enumerate(pieces)]
    end = end_tokens[0] if end_tokens else 0
    wrapped = TokenizerWrapper(_Vocabulary(names, special, end))
    return LLTokenizer(wrapped, eos_token=list(end_tokens) or None)


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    return _tokenizer([bytes([number]) for number in range(256)] + [b""], [256])


def find_error(grammar: str) -> str | None:
    """Why no model can write an answer of `grammar`, in llguidance's words (which may be ""); None = a model can."""
    matcher = LLMatcher(_bytes(), _HEAD + grammar, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if not matcher.is_error():
        return None
    error = _PLACE.sub("", matcher.get_error().partition("\n")[0].strip())
    return "" if error.startswith("NoExtension") else error[:200]
