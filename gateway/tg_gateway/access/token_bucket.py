"""Limit per minute -> waiting time: a token bucket that may go negative, since reservations are settled later."""

from collections.abc import Callable

ROUNDING_TOKENS = 1e-6
"""A shortage below this is a rounding error, and counts as none."""


class TokenBucket:
    """A token bucket, full at first. Amounts are reserved before they are known, and settled afterwards.

    Args:
        per_minute: its size, and its refill per minute.
        time: a monotonic clock, in seconds.

    Attributes:
        size: the given size, or the size after `resize`.
    """

    def __init__(self, per_minute: int, time: Callable[[], float]) -> None:
        self.size = per_minute
        self._rate = per_minute / 60
        self._time = time
        self._level = float(per_minute)
        self._at = time()

    def wait(self, amount: float) -> float:
        """Seconds until `amount` may be taken; 0 = now. More than the bucket's size can never be taken."""
        self._fill()
        missing = amount - self._level
        return missing / self._rate if missing > ROUNDING_TOKENS else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, even if less is left: the rest becomes a debt. A negative amount is given back."""
        self._fill()
        self._level -= amount

    def resize(self, per_minute: int) -> None:
        """Change the size and the rate. What was taken stays taken; a smaller size alone creates no debt."""
        self._fill()
        level = self._level + per_minute - self.size
        self._level = max(level, min(self._level, 0.0))
        self.size = per_minute
        self._rate = per_minute / 60

    @property
    def full(self) -> bool:
        """Whether nothing is taken or owed."""
        return self.wait(self.size) == 0

    def _fill(self) -> None:
        now = self._time()
        self._level = min(self._level + (now - self._at) * self._rate, self.size)
        self._at = now
