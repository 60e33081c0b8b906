"""Prompt -> scheduler: chained hashes of a prompt's blocks, by which servers with the same prefix are found."""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import starmap
from operator import itemgetter
from struct import iter_unpack, unpack
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from hashlib import _Hash

BLOCK_TOKENS = 64
"""Tokens in a block. Prompts with a common beginning share the hashes of the whole blocks in it."""
BLOCK_BYTES = 4 * BLOCK_TOKENS
"""Bytes of a block of token ids."""
CHARACTERS_PER_TOKEN = 4
"""Characters of text that count as one token."""
HASH_BITS = 60
"""Largest size of a hash. Python keeps integers of 60 bits in 32 bytes, and of 64 bits in 36, rounded up to 48."""
_shorten = itemgetter(slice(HASH_BITS // 8))
"""A digest -> its first bytes, as many whole ones as fit into `HASH_BITS`."""


class Fingerprint(Struct, frozen=True):
    """A prompt's prefix of whole blocks.

    Attributes:
        blocks: for each block a hash of it and all blocks before it: equal hashes mean equal beginnings.
    """

    blocks: tuple[int, ...] = ()


NO_FINGERPRINT = Fingerprint()
"""The fingerprint of a prompt that is unknown or shorter than a block."""


def fingerprint_tokens(tokens: Sequence[int], salt: str = "") -> Fingerprint:
    """The fingerprint of token ids, each from 0 to 2**32 - 1.

    Args:
        tokens: the prompt.
        salt: everything else on which the cached values depend: the model and the adapter.
    """
    blocks: list[int] = []
    last = chain_root(salt)
    for (block,) in _split(pack_tokens(tokens), BLOCK_BYTES):
        last = chain_tokens(last, block)
        blocks.append(last)
    return Fingerprint(tuple(blocks))


def salt_tokens(adapter: str | None, salt: str) -> str:
    """The salt of a prompt in token ids. A server has only one model, so the salt need not contain it.

    Args:
        adapter: the adapter; None = none. For a text without an adapter, the model.
        salt: separates a caller's prompts from other callers'; "" = they are not separated.
    """
    return f"{adapter or ''}\0{salt}" if salt else adapter or ""


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids in four bytes each.

    Raises:
        OverflowError: one is below 0 or above 2**32 - 1.
    """
    return array("I", tokens).tobytes()


def chain_tokens(before: int, block: bytes) -> int:
    """The hash of BLOCK_BYTES of token ids, chained to the hash of all ids before them.

    The hash is the chain's whole state, because a server reports a prompt's blocks one by one, and those of many
    prompts alternately.
    """
    return int.from_bytes(_shorten(sha256(before.to_bytes(8, "little") + block).digest()), "little")


def fingerprint_text(text: str, salt: str = "") -> Fingerprint:
    """The fingerprint of a text, with four characters a token.

    Args:
        text: the prompt.
        salt: everything else on which the cached values depend: the model and the adapter.
    """
    size = BLOCK_TOKENS * CHARACTERS_PER_TOKEN
    if text.isascii():  # one byte a character, so encode the whole text once
        return _chain(_split(text.encode("ascii"), size), salt)
    # A client may send half of a surrogate pair; "surrogatepass" encodes it like any other character.
    starts = range(0, len(text) - size + 1, size)
    return _chain(((text[start : start + size].encode("utf-8", "surrogatepass"),) for start in starts), salt)


def fingerprint_prompt(text: str, model: str, adapter: str | None, salt: str = "") -> Fingerprint:
    """The fingerprint of a text for a model and an adapter. All pickers that share their state must use this function.

    Args:
        text: the prompt.
        model: the base model; "" = not known.
        adapter: the adapter, which changes the cached values; None = none.
        salt: as for `salt_tokens`.
    """
    return fingerprint_text(text, salt_tokens(adapter or model, salt))


def _split(raw: bytes, size: int) -> Iterable[tuple[bytes]]:
    """The whole blocks of some bytes."""
    return iter_unpack(f"{size}s", memoryview(raw)[: len(raw) // size * size])


def _chain(blocks: Iterable[tuple[bytes]], salt: str) -> Fingerprint:
    """For each block, the hash of everything up to its end."""
    # A long prompt has thousands of blocks. So take as few steps of Python per block as possible, and a hash for which
    # processors have instructions.
    hasher = _begin(salt)
    digest = hasher.digest
    digests = [digest() for _ in starmap(hasher.update, blocks)]
    # Seven bytes and a zero byte make a number of eight bytes.
    return Fingerprint(unpack(f"<{len(digests)}Q", b"\0".join([*map(_shorten, digests), b""])))


def chain_root(salt: str) -> int:
    """The number to which the first block of a prompt in token ids is chained."""
    return int.from_bytes(_shorten(_begin(salt).digest()), "little")


def _begin(salt: str) -> "_Hash":
    """Begin with a hash of the salt. It has a fixed size, so no other pair of salt and prompt gives the same bytes.

    The salt itself is not kept: clients choose it, and it may have megabytes.
    """
    return sha256(sha256(salt.encode("utf-8", "surrogatepass")).digest())
