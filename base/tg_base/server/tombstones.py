"""Cancels and ends -> processor: attempts that nobody may begin, each remembered for as long as a copy may come."""

from collections import OrderedDict
from collections.abc import Callable

from tg_base.protocol import StreamKey

MAX_TOMBSTONES = 100_000
"""Attempts that are remembered. One whose cancel was forgotten runs until its requestor rejects a frame of it."""


# Not a dict, which looks for its first entry among all that were deleted: a burst would cost its square.
class Tombstones(OrderedDict[StreamKey, float]):
    """Attempts that nobody may begin, each with the time until which it is remembered; `in` checks for one.

    The number of attempts is bounded. Each is remembered until the first `sweep` after its time; later does no harm,
    since no requestor reuses an attempt's number.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def add(self, key: StreamKey, ttl: float) -> None:
        """Remember this attempt for `ttl` seconds."""
        self.sweep()
        if len(self) >= MAX_TOMBSTONES:
            self.popitem(last=False)
        self[key] = self._clock() + ttl

    def sweep(self) -> None:
        """Forget the attempts whose time has expired."""
        now = self._clock()
        # Ordered by arrival, which is nearly the order of expiry: checking the first one is enough.
        while self and next(iter(self.values())) < now:
            self.popitem(last=False)
