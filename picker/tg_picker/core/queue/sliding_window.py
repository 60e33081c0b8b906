"""Attainment -> how many of the last minute's events kept what was promised."""

from typing import NamedTuple

WINDOW_SECONDS = 60.0
BUCKET_COUNT = 12
"""The window slides by a twelfth of itself."""
_BUCKET_SECONDS = WINDOW_SECONDS / BUCKET_COUNT


class Attained(NamedTuple):
    """How many of `total` kept a promise."""

    kept: int
    total: int

    @property
    def share(self) -> float:
        """From 0 to 1; 1 if there was none."""
        return self.kept / self.total if self.total else 1.0


class SlidingWindow:
    """Counts events, each of which kept a promise or not. Memory does not grow with their number."""

    __slots__ = ("_bucket", "_kept", "_total")

    def __init__(self) -> None:
        self._kept = [0] * BUCKET_COUNT
        self._total = [0] * BUCKET_COUNT
        self._bucket = 0

    def note(self, now: float, *, kept: bool) -> None:
        """Count an event; `now` never goes back."""
        if now // _BUCKET_SECONDS > self._bucket:
            self._slide(now)
        at = self._bucket % BUCKET_COUNT
        self._total[at] += 1
        self._kept[at] += kept

    def read(self, now: float) -> Attained:
        """The events of the last WINDOW_SECONDS, give or take a bucket."""
        self._slide(now)
        return Attained(sum(self._kept), sum(self._total))

    def _slide(self, now: float) -> None:
        bucket = int(now // _BUCKET_SECONDS)
        if bucket <= self._bucket:
            return
        for passed in range(self._bucket + 1, min(bucket, self._bucket + BUCKET_COUNT) + 1):
            self._kept[passed % BUCKET_COUNT] = self._total[passed % BUCKET_COUNT] = 0
        # After a gap longer than the window all buckets are empty, whichever they are.
        self._bucket = bucket
