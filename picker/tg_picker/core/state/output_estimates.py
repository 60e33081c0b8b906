"""Placements -> scheduler: the expected length of the next answer, learnt from those that ended."""

from tg_picker.core.interface import InstanceRequest

ASSUMED_OUTPUT_TOKENS = 128
"""Assumed tokens of an answer before one was measured. A flow also pays this for an answer of unknown length."""
LEARNING_RATE = 0.05
"""Weight of a new answer in the mean."""
MAX_ADAPTERS = 10_000
"""Most adapters with a mean of their own, because clients choose the names."""


class OutputEstimates:
    """A running mean of answers' lengths for each adapter. A new adapter starts with the mean over all answers."""

    def __init__(self) -> None:
        self._all = float(ASSUMED_OUTPUT_TOKENS)
        self._means: dict[str | None, float] = {}

    def expect(self, request: InstanceRequest) -> int:
        """Expected tokens of the answer: the request's own estimate, or else the mean; at most `max_tokens`.

        The result is at least 1.
        """
        known = request.expected_tokens
        expected = int(self._means.get(request.adapter, self._all)) if known is None else known
        return max(expected if request.max_tokens is None else min(expected, request.max_tokens), 1)

    def learn(self, adapter: str | None, tokens: int) -> None:
        """Add the length of an answer."""
        self._all += LEARNING_RATE * (tokens - self._all)
        mean = self._means.get(adapter)
        if mean is not None:
            self._means[adapter] = mean + LEARNING_RATE * (tokens - mean)
        elif len(self._means) < MAX_ADAPTERS:
            self._means[adapter] = self._all
