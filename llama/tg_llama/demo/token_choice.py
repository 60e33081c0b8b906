"""Logits and a request's settings -> the next token of one answer."""

from collections import Counter
from typing import Any

import msgspec
import numpy as np

from tg_llama.demo.byte_pairs import BytePairs
from tg_llama.demo.gguf_file import Floats
from tg_schema import Token
from tg_schema.errors import ProtocolError

Weights = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Preferences(msgspec.Struct, frozen=True):
    """What may be chosen; `top_k` 0 and `top_p` 1 are without effect, a `temperature` of 0 chooses the likeliest."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always chosen; then no seed is used."""
        return self.temperature == 0 or self.top_p == 0 or self.top_k == 1


class TokenChoice:
    """Of one answer. Belongs to the engine's thread.

    Args:
        pairs: the vocabulary.
        preferences: of the request.
        matcher: of the answer's grammar; None = any text.
    """

    def __init__(self, pairs: BytePairs, preferences: Preferences, matcher: Any) -> None:
        self._pairs = pairs
        self._preferences = preferences
        self._matcher = matcher
        self._written: Counter[int] = Counter()
        self._random = np.random.default_rng(preferences.seed)

    def choose(self, logits: Floats) -> int:
        """The next token.

        Raises:
            ProtocolError: no token fits the grammar.
        """
        weighed = logits.astype(np.float64)
        wanted = self._preferences
        if self._written and (wanted.presence_penalty or wanted.frequency_penalty):
            counts = np.fromiter(self._written.values(), np.float64)
            weighed[list(self._written)] -= wanted.presence_penalty + wanted.frequency_penalty * counts
        if self._matcher is not None:
            weighed[self._forbidden(len(weighed))] = -np.inf
        token = int(weighed.argmax()) if wanted.is_greedy else self._draw(weighed)
        self._written[token] += 1
        if self._matcher is not None and token not in self._pairs.end_tokens:
            self._matcher.consume_token(token)
        return token

    def _forbidden(self, size: int) -> Mask:
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise ProtocolError("the form of the answer takes too much work to keep to; use a simpler one")
        forbidden: Mask = np.unpackbits(mask, count=size, bitorder="little") == 0
        if forbidden.all():
            raise ProtocolError("the model has no token that continues an answer of this form; use a simpler one")
        return forbidden

    def _draw(self, weighed: Weights) -> int:
        wanted = self._preferences
        count = min(wanted.top_k or len(weighed), len(weighed))
        best = np.argpartition(weighed, -count)[-count:]
        best = best[np.argsort(-weighed[best])]
        chances = _chances(weighed[best])
        # The likeliest are enough whose sum reaches top_p; the first one always is one of them.
        best = best[np.cumsum(chances) - chances < wanted.top_p]
        return int(self._random.choice(best, p=_chances(weighed[best], wanted.temperature)))

    def describe(self, token: int, logits: Floats) -> Token | None:
        """The data of `token`, of the model's own logits, if the request asks for them."""
        alternatives = self._preferences.logprobs
        if alternatives is None:
            return None
        chances = np.log(_chances(logits.astype(np.float64)))
        best = np.argsort(-chances)[:alternatives]
        text = self._text(token)
        return Token(
            id=token,
            text=text,
            logprob=float(chances[token]),
            top=tuple([(int(other), float(chances[other])) for other in best]),
            top_texts=tuple([self._text(int(other)) for other in best]),
            raw_bytes=self._pairs.pieces[token] if "\ufffd" in text else None,
            special=not self._pairs.pieces[token],
        )

    def _text(self, token: int) -> str:
        return self._pairs.pieces[token].decode("utf-8", "replace") or self._pairs.special_text(token)


def _chances(weighed: Weights, temperature: float = 1.0) -> Weights:
    with np.errstate(over="ignore"):  # a temperature near 0 leaves the likeliest alone
        powers = np.exp((weighed - weighed.max()) / temperature)
    chances: Weights = powers / powers.sum()
    return chances
