"""Control messages -> processor: requests that were cancelled while still queued, remembered until their deadline."""

from collections import OrderedDict
from collections.abc import Callable

from tg_base.protocol import StreamKey

MAX_TOMBSTONES = 100_000
"""Cancels that are remembered. A request whose cancel was forgotten runs until its requestor rejects a frame of it."""


class Tombstones:
    """A bounded set whose entries expire.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Not a dict, which looks for its first entry among all that were deleted: a burst would cost its square.
        self._until: OrderedDict[StreamKey, float] = OrderedDict()

    def add(self, key: StreamKey, ttl: float) -> None:
        """Remember this attempt for `ttl` seconds."""
        self.sweep()
        if len(self._until) >= MAX_TOMBSTONES:
            self._until.popitem(last=False)
        self._until[key] = self._clock() + ttl

    def sweep(self) -> None:
        """Forget what has expired."""
        now = self._clock()
        # In the order of their arrival, which is nearly that in which they expire: the first one is enough to look at.
        while self._until and next(iter(self._until.values())) < now:
            self._until.popitem(last=False)

    def take(self, key: StreamKey) -> bool:
        """Whether this attempt was cancelled. Its entry is removed."""
        until = self._until.pop(key, None)
        return until is not None and until >= self._clock()
