"""KV events -> prefix owners: a server's own blocks, and our blocks that end in them."""

from collections.abc import Sequence
from struct import iter_unpack

from msgspec import Struct

from tg_picker.core.interface import BLOCK_BYTES, chain_root, chain_tokens, pack_tokens
from tg_picker.core.state.prefix_owners import PrefixOwners

MAX_KV_BLOCKS = 65_536
"""Most blocks tracked for a server, and most of our blocks in them: a million tokens in vLLM's blocks of 16, which
take 30 MiB here, or four million in larger blocks."""

_GPU, _ELSEWHERE = 1, 2
KvHash = int | bytes
"""A server's name for a block. Another process of that server may give the same block another name."""


class _KvBlock(Struct, gc=False):
    """One block of a server.

    Attributes:
        places: bits of the memories that hold it.
        last: the hash of our last block that ends in it or before it.
        rest: the token ids after that block.
        ours: our blocks that end in it, each with the block before it.
    """

    places: int
    last: int
    rest: bytes
    ours: tuple[tuple[int, int], ...]


class KvBlocks:
    """Translates the blocks that one server reports into our blocks.

    Servers have their own hashes and block sizes, but they report the token ids. One of our blocks counts as cached
    while the server has the block with its last token, because servers forget the end of a prompt before its beginning.

    Args:
        owners: the server's cached blocks; only this object may report to it.
    """

    def __init__(self, owners: PrefixOwners) -> None:
        self._owners = owners
        self._blocks: dict[KvHash, _KvBlock] = {}
        self._ours = 0

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached. Then no further block is tracked until one is removed."""
        return max(len(self._blocks), self._ours) >= MAX_KV_BLOCKS

    def store(
        self,
        hashes: Sequence[KvHash],
        parent: KvHash | None,
        tokens: Sequence[int],
        salt: str = "",
        *,
        elsewhere: bool = False,
    ) -> bool:
        """Note consecutive blocks. A server may report the same blocks again when they are used.

        Args:
            hashes: the hashes of the blocks.
            parent: the block before the first; None = the blocks begin a prompt.
            tokens: the tokens of all blocks; empty = the blocks are known, and moved to another memory.
            salt: as for `fingerprint_tokens`; it matters only where a prompt begins.
            elsewhere: whether they are in a memory from which the server must load them before it uses them.

        Returns:
            False: some blocks were not noted, because their parent is unknown, the limit is reached, or the report is
        """
        place = _ELSEWHERE if elsewhere else _GPU
        if not tokens:
            known = [self._blocks[each] for each in hashes if each in self._blocks]
            for block in known:
                self._tell(block, place)
            return len(known) == len(hashes)
        size = len(tokens) // max(len(hashes), 1)
        before = None if parent is None else self._blocks.get(parent)
        if size * len(hashes) != len(tokens) or (parent is not None and before is None):
            return False
        try:
            raw = pack_tokens(tokens)
        except OverflowError:
            return False
        last, rest = (chain_root(salt), b"") if before is None else (before.last, before.rest)
        for each, (piece,) in zip(hashes, iter_unpack(f"{len(raw) // len(hashes)}s", raw), strict=True):
            found = self._blocks.get(each)
            if found is None:
                if self.is_full:
                    return False
                found = self._blocks[each] = _cut(last, rest + piece)
                self._ours += len(found.ours)
            self._tell(found, place)
            last, rest = found.last, found.rest
        return True

    def remove(self, hashes: Sequence[KvHash], *, elsewhere: bool = False) -> None:
        """Note that blocks were removed from one memory. Blocks that were never noted are ignored."""
        for each in hashes:
            block = self._blocks.get(each)
            if block is not None:
                block.places &= ~(_ELSEWHERE if elsewhere else _GPU)
                if not block.places:
                    del self._blocks[each]
                    self._ours -= len(block.ours)
                    for ours, _ in block.ours:
                        self._owners.untell(ours)

    def clear(self) -> None:
        """Note that all blocks are gone, including those that were only assumed."""
        self._blocks.clear()
        self._ours = 0
        self._owners.clear()

    def doubt(self) -> None:
        """Note that a report was missed: from now on, reported blocks only count as assumed ones."""
        self._blocks.clear()
        self._ours = 0
        self._owners.doubt()

    def _tell(self, block: _KvBlock, place: int) -> None:
        block.places |= place
        for ours, before in block.ours:
            self._owners.tell(ours, before)


def _cut(last: int, tokens: bytes) -> _KvBlock:
    """A server's block that ends with these tokens, which begin where our block `last` ends."""
    ours: list[tuple[int, int]] = []
    whole = len(tokens) // BLOCK_BYTES * BLOCK_BYTES
    for at in range(0, whole, BLOCK_BYTES):
        before, last = last, chain_tokens(last, tokens[at : at + BLOCK_BYTES])
        ours.append((last, before))
    return _KvBlock(0, last, tokens[whole:], tuple(ours))
