"""Deltas of another scheduler -> servers: its requests count like our own, until they or that scheduler end."""

from collections.abc import Callable, Sequence

from tg_picker.core.peers.delta import TICKS_PER_SECOND, Batch, Placed, Snapshot
from tg_picker.core.state import MAX_OUTPUT_TOKENS, LatencySample, Placement

Adopt = Callable[[Sequence[str], Placed, float], Placement | None]
"""Counts a request at its server, which is an index into these names. None: the request is ignored."""


class PeerState:
    """Our knowledge of another scheduler.

    Attributes:
        received_at: when its last message arrived.
        asked_at: when it was last asked for a snapshot.
        is_incomplete: whether a snapshot is needed although no batch is missing, because servers have come or gone.
    """

    def __init__(self, adopt: Adopt, now: float) -> None:
        self.received_at = now
        self.asked_at = float("-inf")
        self.is_incomplete = False
        self._adopt = adopt
        self._next = 0
        self._announced = 0
        self._open: dict[int, Placement] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_behind(self) -> bool:
        """Whether a batch of it is missing, so that a snapshot is needed."""
        return self._announced > self._next or self.is_incomplete

    def hear(self, seq: int) -> None:
        """Note the number of its next batch."""
        self._announced = max(self._announced, seq)

    def apply(self, batch: Batch, now: float) -> bool:
        """Apply a batch if it is the next one. Returns whether it was; a repeated batch is not applied."""
        self.hear(batch.seq + 1)
        if batch.seq != self._next:
            return False
        self._next += 1
        for placed in batch.placed:
            self._place(batch.names, placed, now)
        for number, tokens, ticks in batch.started:
            if number in self._open:
                self._open[number].first_token(now, _sample(tokens, ticks))
        for number, tokens, ticks in batch.ended:
            self._end(number, now, _sample(tokens, ticks) if 0 < tokens <= MAX_OUTPUT_TOKENS else None)
        return True

    def replace(self, snapshot: Snapshot, now: float) -> None:
        """Apply a snapshot if it is newer than our knowledge."""
        self.hear(snapshot.seq)
        if snapshot.seq < self._next or not self.is_behind:
            return
        if self.is_incomplete:
            self.drop(now)
        for number in self._open.keys() - {placed.number for placed in snapshot.placed}:
            self._end(number, now)
        for placed in snapshot.placed:
            self._place(snapshot.names, placed, now)
        self._next = self._announced = snapshot.seq
        self.is_incomplete = False

    def drop(self, now: float) -> None:
        """End all requests of this scheduler."""
        for number in [*self._open]:
            self._end(number, now)

    def _place(self, names: Sequence[str], placed: Placed, now: float) -> None:
        placement = self._open.get(placed.number) or self._adopt(names, placed, now)
        if placement is not None:
            self._open[placed.number] = placement
            if placed.started:
                placement.first_token(now)

    def _end(self, number: int, now: float, sample: LatencySample | None = None) -> None:
        placement = self._open.pop(number, None)
        if placement is not None:
            placement.finish(None, now, sample)


def _sample(tokens: int, ticks: int) -> LatencySample | None:
    return LatencySample(tokens, ticks / TICKS_PER_SECOND) if ticks else None
