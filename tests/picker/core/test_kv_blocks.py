"""What a server tells of its own blocks: the same prompts are found as by their token ids, and no others."""

import tracemalloc
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_picker.core import Fingerprint, KvBlocks, fingerprint_tokens
from tg_picker.core.state.kv_blocks import MAX_KV_BLOCKS, KvHash
from tg_picker.core.state.prefix_owners import PrefixOwners

LONG = tuple(range(640))


class Engine:
    """A server's cache: blocks of `size` tokens with hashes of its own, of which it tells."""

    def __init__(self, size: int = 16) -> None:
        self.owners = PrefixOwners()
        self.kv = KvBlocks(self.owners)
        self.size = size
        self.hashes: dict[tuple[int, ...], KvHash] = {}
        self.numbers = count(1)

    def cut(self, tokens: tuple[int, ...]) -> list[KvHash]:
        ends = range(self.size, len(tokens) + 1, self.size)
        return [self.hashes.setdefault(tokens[:end], next(self.numbers).to_bytes(32, "big")) for end in ends]

    def run(self, tokens: tuple[int, ...], had: int = 0) -> bool:
        """Compute a prompt of which `had` blocks are there."""
        hashes = self.cut(tokens)
        parent = hashes[had - 1] if had else None
        new = tokens[had * self.size : len(hashes) * self.size]
        return self.kv.store(hashes[had:], parent, new)

    def match(self, tokens: tuple[int, ...]) -> int:
        return self.owners.match(fingerprint_tokens(tokens))


@pytest.mark.parametrize("size", [1, 16, 24, 64, 128, 256])
def test_blocks_of_any_size_are_found_by_the_tokens_of_a_prompt(size: int) -> None:
    engine = Engine(size)
    assert engine.run(LONG)
    whole = len(LONG) // size * size // 64
    assert engine.match(LONG) == len(engine.owners) == whole
    fork = (*LONG[:200], 7, *LONG[201:])
    assert engine.match(fork) == 3
    assert engine.run(fork, 200 // size)
    assert engine.match(fork) == whole
    assert not engine.owners.match(fingerprint_tokens(LONG, "adapter"))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.booleans()), max_size=30))
def test_what_is_told_is_what_the_server_has(steps: list[tuple[int, int, bool]]) -> None:
    """Prompts of three families grow and shrink from their ends, whatever the order."""
    engine, had = Engine(), [0, 0, 0]
    for family, blocks, grows in steps:
        tokens = (family, *LONG[1:])
        hashes = engine.cut(tokens)
        if grows and blocks > had[family]:
            assert engine.run(tokens[: blocks * 16], had[family])
            had[family] = blocks
        elif not grows and blocks < had[family]:
            engine.kv.remove(hashes[blocks : had[family]])
            had[family] = blocks
        for each in range(3):
            assert engine.match((each, *LONG[1:])) == had[each] // 4
    assert len(engine.kv) == sum(had)


def test_what_was_placed_counts_until_it_is_told_of() -> None:
    """Between a placement and its event a second request must find the prompt; after an eviction it must not."""
    engine = Engine()
    prompt = fingerprint_tokens(LONG)
    engine.owners.add(prompt)
    assert engine.match(LONG) == 10
    engine.run(LONG)
    engine.owners.add(prompt)
    assert (len(engine.owners.blocks), len(engine.owners.told)) == (0, 10)
    assert engine.owners.chain(prompt.blocks[-1]) == (None, [*prompt.blocks])
    engine.kv.remove(engine.cut(LONG)[20:])
    assert engine.match(LONG) == 5
    assert engine.owners.extend(prompt.blocks[4], (1, 2))
    assert engine.owners.match(Fingerprint((*prompt.blocks[:5], 1, 2))) == 7


def test_a_block_in_two_memories_is_there_until_it_has_left_both() -> None:
    engine = Engine()
    engine.run(LONG)
    engine.run(LONG)  # told again, since a request used it
    hashes = engine.cut(LONG)
    assert engine.kv.store(hashes, None, (), elsewhere=True)
    engine.kv.remove(hashes)
    assert engine.match(LONG) == 10
    engine.kv.remove(hashes, elsewhere=True)
    assert engine.match(LONG) == len(engine.kv) == 0


def test_what_cannot_be_placed_is_not_believed() -> None:
    engine = Engine()
    hashes = engine.cut(LONG)
    assert not engine.kv.store(hashes[1:], hashes[0], LONG[16:])  # of no known beginning
    assert not engine.kv.store(hashes, None, LONG[1:])
    assert not engine.kv.store([], None, LONG)
    assert not engine.kv.store(hashes, None, ())
    assert not engine.kv.store(hashes[:1], None, (-1,) * 16)
    assert not engine.kv.store(hashes[:1], None, (2**32,) * 16)
    engine.kv.remove(hashes)
    assert len(engine.kv) == len(engine.owners) == 0


def test_after_a_gap_what_was_told_is_believed_and_forgotten_in_time() -> None:
    engine = Engine()
    engine.run(LONG)
    engine.owners.resize(10)
    engine.kv.doubt()
    assert engine.match(LONG) == 10
    assert (len(engine.kv), len(engine.owners.told)) == (0, 0)
    engine.owners.add(Fingerprint((1, 2, 3)))
    assert engine.match(LONG) == 7
    engine.kv.clear()
    assert len(engine.owners) == 0


def test_blocks_of_a_server_are_bounded() -> None:
    engine, others = Engine(), range(len(LONG), len(LONG) + MAX_KV_BLOCKS - 20)
    assert engine.kv.store(others, None, others)
    assert not engine.run(LONG)
    assert (len(engine.kv), engine.match(LONG)) == (MAX_KV_BLOCKS, 5)


def test_a_block_of_a_server_takes_at_most_half_a_kibibyte() -> None:
    """With all that is known of it: MAX_KV_BLOCKS of a server are 30 MiB."""
    engine = Engine()
    hashes = [number.to_bytes(32, "big") for number in range(4_000)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert engine.kv.store(hashes, None, range(64_000))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / len(hashes) <= 480
