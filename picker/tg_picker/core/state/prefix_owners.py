"""Placements and KV events -> scheduler: which prompt blocks a server has cached, as it reports or as assumed."""

from collections import ChainMap, deque
from collections.abc import Container, Sequence
from itertools import islice, repeat
from typing import Literal

from tg_picker.core.interface import Fingerprint

DEFAULT_MAX_BLOCKS = 4_688
"""Blocks remembered for a server that does not report the size of its cache: 300,000 tokens."""
MAX_BLOCKS = 16_384
"""Most blocks remembered for a server: a million tokens, 5 MiB."""
EVICTED_SHARE = 8
"""A full memory forgets its oldest 1 / EVICTED_SHARE at a time."""


class PrefixOwners:
    """The blocks in one server's cache, least recently used first.

    Using a block also uses all blocks before it, and those count as used later. So the end of a prompt is forgotten
    first: if a block is known, all blocks before it are.

    A server may report its blocks (`tell`). Then its reports count, and placements only add blocks that it has not
    reported yet.

    Attributes:
        blocks: the assumed blocks (do not change them), each with the block before it; None = it is the first.
        told: the reported blocks, in the same form. No block is in both.
        capacity: the most assumed blocks.
        source: where the knowledge is from: `exact` = the server reported everything since it began, `partial` = some
            reports were missed.
    """

    def __init__(self, capacity: int = DEFAULT_MAX_BLOCKS) -> None:
        self.blocks: dict[int, int | None] = {}
        self.told: dict[int, int | None] = {}
        self.capacity = capacity
        self.source: Literal["believed", "partial", "exact"] = "believed"

    def __len__(self) -> int:
        return len(self.blocks) + len(self.told)

    def knows(self, block: int) -> bool:
        """Whether the server has a block, as it reported or as assumed."""
        return block in self.blocks or block in self.told

    def tell(self, block: int, before: int) -> None:
        """Note that the server reports a block. The block before it need not be known."""
        self.blocks.pop(block, None)
        self.told[block] = before

    def untell(self, block: int) -> None:
        """Note that the server reports that a block is gone."""
        self.told.pop(block, None)

    def doubt(self) -> None:
        """Treat the reported blocks as assumed ones, because one of the server's reports was missed."""
        # The server reported the end of a prompt last, but the end must be forgotten first.
        self.blocks = {**dict(reversed(self.told.items())), **self.blocks}
        self.told.clear()
        self._evict(0)

    def resize(self, blocks: int) -> None:
        """Set how many blocks the server's cache holds, at most MAX_BLOCKS."""
        self.capacity = max(1, min(blocks, MAX_BLOCKS))
        self._evict(0)

    def match(self, prefix: Fingerprint) -> int:
        """How many blocks are known, from the beginning on. Takes a logarithm of the prompt's length."""
        blocks, knows = prefix.blocks, self.knows
        if not blocks or not knows(blocks[0]):
            return 0
        if knows(blocks[-1]):
            # The same prompt was sent before, or a longer one with this prefix.
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
        """Note that the server computes this prompt.

        If the prompt is longer than the cache, only its beginning is noted.
        """
        self.extend(None, prefix.blocks[: self.capacity])

    def extend(self, last: int | None, behind: Sequence[int]) -> bool:
        """Note that the server computes a prompt that another scheduler placed.

        Args:
            last: the last of its blocks that the other scheduler knew to be on this server; None = none.
            behind: the blocks after `last`.

        Returns:
            False: `last` is not known here, so nothing was noted.
        """
        known = self.blocks
        if last is not None and not self.knows(last):
            return False
        # Take no Python step per block: a long prompt has thousands.
        deque(map(known.pop, behind, repeat(None)), maxlen=0)
        # Insert them from the end on, so that the end is forgotten first.
        known.update(zip(reversed(behind), reversed((last, *behind[:-1])), strict=False))
        if self.told:
            deque(map(known.pop, self.told.keys() & behind, repeat(None)), maxlen=0)
        used = len(behind)
        # Bound the number of steps: blocks that a server reports might form a circle.
        while last is not None and last in known and used < MAX_BLOCKS:
            before = known.pop(last)
            known[last] = before
            last, used = before, used + 1
        self._evict(used)
        return True

    def chain(self, block: int, without: Container[int] = ()) -> tuple[int | None, list[int]]:
        """A known block and the blocks before it, in the order of the prompt.

        Args:
            block: the last block.
            without: blocks at which the chain ends.

        Returns:
            The block of `without` at which the chain ends, or None; and the blocks after it.
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
        """Forget everything, because the server left or restarted."""
        self.blocks.clear()
        self.told.clear()

    def _evict(self, newest: int) -> None:
        """Forget the oldest blocks if there are too many, but keep the `newest` last ones."""
        excess = len(self.blocks) - self.capacity
        if excess <= 0:
            return
        # Evict in batches: to evict a single block, `islice` would have to pass the gaps of all earlier evictions.
        batch = max(excess, min(self.capacity // EVICTED_SHARE, len(self.blocks) - newest))
        for block in list(islice(self.blocks, batch)):
            del self.blocks[block]
