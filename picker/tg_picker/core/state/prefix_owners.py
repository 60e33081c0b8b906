"""Placements and KV events -> scheduler: which blocks of prompts a server has in its cache, probably or as it tells."""

from collections import ChainMap, deque
from collections.abc import Container, Sequence
from itertools import islice, repeat
from typing import Literal

from tg_picker.core.interface import Fingerprint

DEFAULT_MAX_BLOCKS = 4_688
"""Blocks remembered of a server that does not tell the size of its cache: 300,000 tokens."""
MAX_BLOCKS = 16_384
"""Blocks remembered of any server: a million tokens, 5 MiB."""
EVICTED_SHARE = 8
"""A full memory forgets its oldest 1 / EVICTED_SHARE at once."""


class PrefixOwners:
    """The blocks that one server was given, least recently used first.

    A block is always used together with all blocks before it, and these count as used later. So what is forgotten first
    is the end of a prompt: whenever a block is known, all before it are.

    A server may tell what it has (`tell`). Then that counts, and a placement only for what was not told of yet.

    Attributes:
        blocks: those believed, for reading; each with the block before it; None = it is the first.
        told: those that the server tells, likewise. No block is in both.
        capacity: the most that are believed.
        source: of what is known: `exact` = the server told all since it began, `partial` = some of it was missed.
    """

    __slots__ = ("blocks", "capacity", "source", "told")

    def __init__(self, capacity: int = DEFAULT_MAX_BLOCKS) -> None:
        self.blocks: dict[int, int | None] = {}
        self.told: dict[int, int | None] = {}
        self.capacity = capacity
        self.source: Literal["believed", "partial", "exact"] = "believed"

    def __len__(self) -> int:
        return len(self.blocks) + len(self.told)

    def knows(self, block: int) -> bool:
        """Whether the server has a block, as it tells or as is believed."""
        return block in self.blocks or block in self.told

    def tell(self, block: int, before: int) -> None:
        """Note that the server tells that it has a block, and the one before it; this may be none that is known."""
        self.blocks.pop(block, None)
        self.told[block] = before

    def untell(self, block: int) -> None:
        """Note that the server tells that it has a block no more."""
        self.told.pop(block, None)

    def doubt(self) -> None:
        """Believe what was told, as if it were placed: something that the server told was missed."""
        # The end of a prompt was told last, and is to be forgotten first.
        self.blocks = {**dict(reversed(self.told.items())), **self.blocks}
        self.told.clear()
        self._evict(0)

    def resize(self, blocks: int) -> None:
        """Set how many blocks the server's cache holds, at most MAX_BLOCKS."""
        self.capacity = max(1, min(blocks, MAX_BLOCKS))
        self._evict(0)

    def match(self, prefix: Fingerprint) -> int:
        """How many blocks from the beginning on are known. Costs a logarithm of the prompt's length."""
        blocks, knows = prefix.blocks, self.knows
        if not blocks or not knows(blocks[0]):
            return 0
        if knows(blocks[-1]):
            # A prompt that was asked before, or the beginning of one.
            return len(blocks)
        low, high = 1, len(blocks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if knows(blocks[middle - 1]):
                low = middle
            else:
                high = middle - 1
        return low

    def add(self, prefix: Fingerprint) -> None:
        """Note that the server computes this prompt. Of one longer than the cache, its beginning is noted."""
        self.extend(None, prefix.blocks[: self.capacity])

    def extend(self, last: int | None, behind: Sequence[int]) -> bool:
        """Note that the server computes a prompt, of which another scheduler told.

        Args:
            last: the last of its blocks that the other one knew to be here; None = none.
            behind: the blocks behind it.

        Returns:
            False: `last` is not known here, so that nothing was noted.
        """
        known = self.blocks
        if last is not None and not self.knows(last):
            return False
        # No step of Python for a block: a long prompt has thousands.
        deque(map(known.pop, behind, repeat(None)), maxlen=0)
        # From the end on, so that what is forgotten first is the end.
        known.update(zip(reversed(behind), reversed((last, *behind[:-1])), strict=False))
        if self.told:
            deque(map(known.pop, self.told.keys() & behind, repeat(None)), maxlen=0)
        used = len(behind)
        # As often as there are blocks, since those that a stranger tells may lead in a circle.
        while last is not None and last in known and used < MAX_BLOCKS:
            before = known.pop(last)
            known[last] = before
            last, used = before, used + 1
        self._evict(used)
        return True

    def chain(self, block: int, without: Container[int] = ()) -> tuple[int | None, list[int]]:
        """A known block and those before it, in the order of the prompt.

        Args:
            block: the last one.
            without: blocks at which it ends.

        Returns:
            The block of `without` that it ends at, or None; and the blocks behind that.
        """
        found: list[int] = []
        known = ChainMap(self.blocks, self.told) if self.told else self.blocks
        at: int | None = block
        while at is not None and at in known and at not in without and len(found) < MAX_BLOCKS:
            found.append(at)
            at = known[at]
        found.reverse()
        return (at if at in without else None), found

    def clear(self) -> None:
        """Forget all: the server is gone or began anew."""
        self.blocks.clear()
        self.told.clear()

    def _evict(self, newest: int) -> None:
        """Forget the oldest blocks if there are too many, but none of the newest ones."""
        excess = len(self.blocks) - self.capacity
        if excess <= 0:
            return
        # Evict in batches: a single eviction would have to pass the gaps of all earlier ones.
        batch = max(excess, min(self.capacity // EVICTED_SHARE, len(self.blocks) - newest))
        for block in list(islice(self.blocks, batch)):
            del self.blocks[block]
