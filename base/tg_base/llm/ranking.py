"""LlmChunks of several answers -> the best of them, by the mean log-probability of their tokens."""

import math

import msgspec

from tg_base.llm.core import LlmChunk


class Ranking:
    """Reads the chunks of all answers.

    Args:
        tokens: whether the request asks for the data of the tokens; otherwise that data is removed from the chunks.
    """

    def __init__(self, *, tokens: bool) -> None:
        self._tokens = tokens
        self._sums: dict[int, tuple[float, int]] = {}

    def edit(self, chunk: LlmChunk) -> LlmChunk:
        """Count the chunk's tokens, and return it in the form that the requestor wants."""
        known = [token.logprob for token in chunk.tokens if token.logprob is not None]
        total, count = self._sums.get(chunk.index, (0.0, 0))
        self._sums[chunk.index] = total + sum(known), count + len(known)
        return chunk if self._tokens or not chunk.tokens else msgspec.structs.replace(chunk, tokens=())

    def best(self, count: int) -> list[int]:
        """The indexes of the `count` best answers, the best one first; one without log-probabilities comes last."""
        means = {index: total / number if number else -math.inf for index, (total, number) in self._sums.items()}
        return sorted(means, key=lambda index: (-means[index], index))[:count]
