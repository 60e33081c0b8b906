"""Predicted and measured latencies -> the probability that a latency stays below a bound."""

from math import floor, log2

STEPS_PER_OCTAVE = 4
MAX_OCTAVES = 5
"""Limits the ratio of measured to predicted latency to 1/32 and 32."""
FORGETTING = 0.995
"""Weight of all earlier samples when a new one is added: about the last 200 samples count."""
PRIOR_WEIGHT = 10.0
_MIN_SECONDS = 1e-6
_HALF = STEPS_PER_OCTAVE * MAX_OCTAVES


class PredictionErrors:
    """The distribution of measured / predicted latency, in steps of a quarter of an octave (a factor of 2**0.25)."""

    def __init__(self) -> None:
        self._weights = [0.0] * (2 * _HALF + 1)
        # The prior: usually up to the prediction, sometimes two or four times as much.
        for ratio, share in ((0.5, 0.3), (0.95, 0.5), (1.9, 0.15), (3.8, 0.05)):
            self._weights[_step(ratio)] = PRIOR_WEIGHT * share
        self._total = PRIOR_WEIGHT

    def learn(self, predicted: float, measured: float) -> None:
        """Add a predicted and a measured latency, in seconds."""
        self._weights = [FORGETTING * weight for weight in self._weights]
        self._weights[_step(max(measured, _MIN_SECONDS) / max(predicted, _MIN_SECONDS))] += 1.0
        self._total = FORGETTING * self._total + 1.0

    def share_within(self, predicted: float, bound: float) -> float:
        """The probability that a latency with this prediction stays below a bound; both in seconds."""
        if bound <= 0:
            return 0.0
        return sum(self._weights[: _step(bound / max(predicted, _MIN_SECONDS))]) / self._total


def _step(ratio: float) -> int:
    """The index of a ratio's step. The first and the last step include everything beyond them."""
    return min(max(floor(STEPS_PER_OCTAVE * log2(ratio)) + _HALF + 1, 0), 2 * _HALF)
