"""Own placements -> deltas: what this scheduler did since its previous batch."""

from collections.abc import Callable
from itertools import count

from msgspec.structs import replace
from typing_extensions import override

from tg_picker.core.interface import Fingerprint, InstanceUsage
from tg_picker.core.peers.delta import (
    MAX_PLACED,
    MAX_TICKS,
    MAX_TOKENS,
    TICKS_PER_SECOND,
    Batch,
    Event,
    Placed,
    Snapshot,
    is_sendable,
    pack_blocks,
)
from tg_picker.core.state import MAX_BLOCKS, Follower, LatencySample, Placement

MAX_PENDING = 10_000
"""Most entries that are kept if nobody fetches them. If there are more, all are dropped: the other schedulers notice
the gap and ask for a snapshot."""
BLOCKS_PER_ENTRY = 8
"""This many blocks of a prompt count as one entry more."""


class Journal(Follower):
    """Collects what the scheduler does, except requests adopted from other schedulers.

    Args:
        origin: the scheduler's number.
        wake: called when there is something new to publish.

    Attributes:
        seq: the number of the next batch.
        is_heard: whether another scheduler listens; if not, only running requests are remembered.
    """

    def __init__(self, origin: int, wake: Callable[[], None]) -> None:
        self.seq = 0
        self.is_heard = True
        self._origin = origin
        self._wake = wake
        self._numbers = count(1)
        self._open: dict[int, Placement] = {}
        self._clear()

    def _clear(self) -> None:
        self._names = _Names()
        self._batch = Batch(self._origin, self.seq, [], [], [], [], [])
        self._pending = 0

    @override
    def placed(self, placement: Placement, prefix: Fingerprint, matched: int) -> None:
        placement.number = next(self._numbers)
        self._open[placement.number] = placement
        if not self.is_heard:
            return
        blocks = prefix.blocks
        last = blocks[matched - 1] if matched else None
        new = blocks[matched:MAX_BLOCKS]
        self._batch.placed.append(_describe(placement, self._names, last, pack_blocks(new)))
        self._grow(1 + len(new) // BLOCKS_PER_ENTRY)

    @override
    def began(self, placement: Placement, sample: LatencySample | None, now: float) -> None:
        if placement.number in self._open and self.is_heard:
            self._batch.started.append(_event(placement, sample))
            self._grow()

    @override
    def finished(
        self, placement: Placement, sample: LatencySample | None, usage: InstanceUsage | None, now: float
    ) -> None:
        if self._open.pop(placement.number, None) is not None and self.is_heard:
            self._batch.ended.append(_event(placement, sample))
            self._grow()

    @override
    def lacked(self, address: str, adapter: str) -> None:
        if self.is_heard and is_sendable(adapter):
            self._batch.lacking.append((self._names[address], self._names[adapter]))
            self._grow()

    def rest(self) -> None:
        """Stop collecting, because nobody listens, until `resume`."""
        self.is_heard = False
        self._clear()

    def resume(self) -> None:
        """Collect again, because somebody listens. Skip a number, so that the other schedulers notice the gap."""
        if not self.is_heard:
            self.is_heard = True
            self.seq += 1

    def take(self) -> Batch | None:
        """The next batch, with each entry once; None = there is nothing to publish."""
        if not self._pending:
            return None
        batch = replace(self._batch, seq=self.seq, names=[*self._names])
        self._clear()
        self.seq += 1
        return batch

    def snapshot(self) -> Snapshot:
        """A snapshot of all requests that have not ended.

        It names only one block of each prompt: peers know the prompt's other blocks from what they know of the servers.
        """
        names = _Names()
        latest = list(self._open.values())[-MAX_PLACED:]
        placed = [_describe(each, names, each.marks[-1] if each.marks else None) for each in latest]
        return Snapshot(self._origin, self.seq, [*names], placed)

    def _grow(self, entries: int = 1) -> None:
        if not self._pending:
            self._wake()
        self._pending += entries
        if self._pending > MAX_PENDING:
            self._clear()
            self.seq += 1  # a gap, which the other schedulers notice


class _Names(dict[str, int]):
    """Names -> their indices, in the order in which they were added."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


def _describe(placement: Placement, names: _Names, last: int | None, behind: bytes = b"") -> Placed:
    adapter = placement.adapter
    return Placed(
        placement.number,
        names[placement.address],
        names[adapter] if adapter is not None and is_sendable(adapter) else None,
        min(placement.prompt_tokens, MAX_TOKENS),
        min(placement.uncached_tokens, MAX_TOKENS),
        min(placement.expected_tokens, MAX_TOKENS),
        placement.first_at is not None,
        last,
        behind,
        min(placement.room, MAX_TOKENS),
    )


def _event(placement: Placement, sample: LatencySample | None) -> Event:
    if sample is None or sample.tokens > MAX_TOKENS:
        return placement.number, 0, 0
    ticks = min(max(round(sample.seconds * TICKS_PER_SECOND), 0), MAX_TICKS)
    return placement.number, sample.tokens, ticks
