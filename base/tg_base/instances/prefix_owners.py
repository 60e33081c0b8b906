"""Placements -> scheduler: which blocks of prompts a server probably still has in its cache."""

from itertools import islice

from tg_base.instances.fingerprint import Fingerprint

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

    Attributes:
        blocks: those known, for reading.
        capacity: the most that are kept.
    """

    __slots__ = ("blocks", "capacity")

    def __init__(self, capacity: int = DEFAULT_MAX_BLOCKS) -> None:
        self.blocks: dict[int, None] = {}
        self.capacity = capacity

    def __len__(self) -> int:
        return len(self.blocks)

    def resize(self, blocks: int) -> None:
        """Set how many blocks the server's cache holds, at most MAX_BLOCKS."""
        self.capacity = max(1, min(blocks, MAX_BLOCKS))
        self._evict(0)

    def match(self, prefix: Fingerprint) -> int:
        """How many blocks from the beginning on are known. Costs a logarithm of the prompt's length."""
        blocks, known = prefix.blocks, self.blocks
        if not blocks or blocks[0] not in known:
            return 0
        low, high = 1, len(blocks)
        while low < high:
            middle = (low + high + 1) // 2
            if blocks[middle - 1] in known:
                low = middle
            else:
                high = middle - 1
        return low

    def add(self, prefix: Fingerprint) -> None:
        """Note that the server computes this prompt. Of one longer than the cache, its beginning is noted."""
        known = self.blocks
        newest = prefix.blocks[: self.capacity]
        for block in reversed(newest):
            known.pop(block, None)
            known[block] = None
        self._evict(len(newest))

    def clear(self) -> None:
        """Forget all: the server is gone or began anew."""
        self.blocks.clear()

    def _evict(self, newest: int = 0) -> None:
        """Forget the oldest blocks if there are too many, but none of the newest ones."""
        excess = len(self.blocks) - self.capacity
        if excess <= 0:
            return
        # One at a time would look at the holes of all earlier deletions each time.
        batch = max(excess, min(self.capacity // EVICTED_SHARE, len(self.blocks) - newest))
        for block in list(islice(self.blocks, batch)):
            del self.blocks[block]
