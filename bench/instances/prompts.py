"""Names of what a prompt is made of -> its fingerprint."""

from functools import lru_cache

from tg_picker.core import Fingerprint

BLOCK_TOKENS = 64
_HASH_MASK = 2**60 - 1


@lru_cache(1_000)
def _part(name: tuple[str, int], before: int, blocks: int) -> tuple[int, ...]:
    """Chained hashes of a part. Hashes of integers are the same in every process; those of texts are not."""
    seed = hash((ord(name[0]), name[1], before))
    return tuple(hash((seed, number)) & _HASH_MASK for number in range(blocks))


def prompt(first: tuple[str, int], first_tokens: int, second: tuple[str, int], second_tokens: int) -> Fingerprint:
    """The fingerprint of two parts, one behind the other."""
    head = _part(first, 0, first_tokens // BLOCK_TOKENS)
    rest = (first_tokens % BLOCK_TOKENS + second_tokens) // BLOCK_TOKENS
    return Fingerprint(head + _part(second, head[-1] if head else 0, rest))


def extended(prefix: Fingerprint, name: tuple[str, int], tokens: int) -> Fingerprint:
    """A fingerprint, continued to the length of a prompt in tokens."""
    known = prefix.blocks
    return Fingerprint(known + _part(name, known[-1] if known else 0, tokens // BLOCK_TOKENS - len(known)))
