"""Placements -> scheduler: the expected length of the next answer, from those that ended."""

from tg_picker.core.interface import InstanceRequest

ASSUMED_OUTPUT_TOKENS = 128
"""The assumed length of an answer until one was measured, and what a flow pays for an answer of unknown length."""
LEARNING_RATE = 0.05
"""Weight of one answer in the mean."""
MAX_ADAPTERS = 10_000
"""Adapters with a mean of their own; names come from clients."""


class OutputEstimates:
    """A running mean of the length of answers, by adapter. A new adapter starts with the mean of all."""

    def __init__(self) -> None:
        self._all = float(ASSUMED_OUTPUT_TOKENS)
        self._means: dict[str | None, float] = {}

    def expect(self, request: InstanceRequest) -> int:
        """Expected tokens of the answer: the request's own figure, or else the learnt mean; at most `max_tokens`.

        At least 1.
        """
        known = request.expected_tokens
        expected = int(self._means.get(request.adapter, self._all)) if known is None else known
        return max(expected if request.max_tokens is None else min(expected, request.max_tokens), 1)

    def learn(self, adapter: str | None, tokens: int) -> None:
        """Note the length of an answer."""
        self._all += LEARNING_RATE * (tokens - self._all)
        mean = self._means.get(adapter)
        if mean is not None:
            self._means[adapter] = mean + LEARNING_RATE * (tokens - mean)
        elif len(self._means) < MAX_ADAPTERS:
            self._means[adapter] = self._all
