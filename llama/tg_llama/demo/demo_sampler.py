"""Logits and a request's settings -> the next token of one answer."""

from collections import Counter
from collections.abc import Container
from typing import Any

import numpy as np

from tg_llama.core import SamplerSettings
from tg_llama.demo.demo_context import DemoContext
from tg_llama.grammar import take_begun
from tg_schema.errors import ProtocolError

Weights = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class DemoSampler:
    """See `core.Sampler`.

    Args:
        settings: the request's settings.
        matcher: the matcher of the answer's grammar; None = any text.
        end_tokens: the tokens that end an answer.
    """

    def __init__(self, settings: SamplerSettings, matcher: Any, end_tokens: Container[int]) -> None:
        self._settings = settings
        self._matcher = matcher
        self._end_tokens = end_tokens
        self._written: Counter[int] = Counter()
        self._random = np.random.default_rng(settings.seed)

    def sample(self, context: DemoContext, row: int) -> int:
        """See `core.Sampler`."""
        weighed = context.logits(row).astype(np.float64)
        wanted = self._settings
        if self._written and (wanted.presence_penalty or wanted.frequency_penalty):
            counts = np.fromiter(self._written.values(), np.float64)
            weighed[list(self._written)] -= wanted.presence_penalty + wanted.frequency_penalty * counts
        if self._matcher is not None:
            weighed[self._forbidden(len(weighed))] = -np.inf
        token = int(weighed.argmax()) if wanted.is_greedy else self._draw(weighed)
        self._written[token] += 1
        if self._matcher is not None and token not in self._end_tokens:
            self._matcher.consume_token(token)
        return token

    def accept(self, token: int) -> None:
        """See `core.Sampler`."""
        self._written[token] += 1
        if self._matcher is not None:
            take_begun(self._matcher, token)

    def _forbidden(self, size: int) -> Mask:
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise ProtocolError("the form of the answer takes too much work to enforce; use a simpler one")
        forbidden: Mask = np.unpackbits(mask, count=size, bitorder="little") == 0
        if forbidden.all():
            raise ProtocolError("the model has no token that continues an answer of this form; use a simpler one")
        return forbidden

    def _draw(self, weighed: Weights) -> int:
        wanted = self._settings
        count = min(wanted.top_k or len(weighed), len(weighed))
        best = np.argpartition(weighed, -count)[-count:]
        best = best[np.argsort(-weighed[best])]
        chances = _chances(weighed[best])
        # Keep the likeliest tokens until their sum reaches top_p; the first one is always kept.
        best = best[np.cumsum(chances) - chances < wanted.top_p]
        return int(self._random.choice(best, p=_chances(weighed[best], wanted.temperature)))

    def close(self) -> None:
        """See `core.Sampler`."""


def _chances(weighed: Weights, temperature: float = 1.0) -> Weights:
    with np.errstate(over="ignore"):  # a temperature near 0 leaves only the likeliest token
        powers = np.exp((weighed - weighed.max()) / temperature)
    chances: Weights = powers / powers.sum()
    return chances
