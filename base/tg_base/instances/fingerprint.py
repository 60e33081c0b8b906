"""Prompt -> scheduler: chained hashes of a prompt's blocks, by which servers that computed its beginning are found."""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import iter_unpack, unpack

from msgspec import Struct

BLOCK_TOKENS = 64
"""Tokens in a block. Two prompts share as many blocks as they begin with in common."""
CHARACTERS_PER_TOKEN = 4
"""What a token counts where only text is known."""
HASH_BITS = 60
"""Of a block. Python keeps integers of 60 bits in 32 bytes, and those of 64 bits in 36, rounded up to 48."""
_HASH_BYTES = 8
_SPARE_BITS = 8 * _HASH_BYTES - HASH_BITS
_EMPTY = blake2b(digest_size=_HASH_BYTES)


class Fingerprint(Struct, frozen=True):
    """The beginning of a prompt, in whole blocks.

    Attributes:
        blocks: a hash of each block and of all before it: equal hashes mean equal beginnings.
    """

    blocks: tuple[int, ...] = ()


NO_FINGERPRINT = Fingerprint()
"""Of a prompt shorter than a block, or of which nothing is known."""


def fingerprint_tokens(tokens: Sequence[int], salt: str = "") -> Fingerprint:
    """The fingerprint of token ids, each from 0 to 2**32 - 1.

    Args:
        tokens: the prompt.
        salt: what else the cached values depend on: the model and the adapter.
    """
    data = array("I", tokens)
    raw, size = data.tobytes(), BLOCK_TOKENS * data.itemsize
    return _chain(_split(raw, size), salt)


def fingerprint_text(text: str, salt: str = "") -> Fingerprint:
    """The fingerprint of a text, with four characters a token.

    Args:
        text: the prompt.
        salt: what else the cached values depend on: the model and the adapter.
    """
    size = BLOCK_TOKENS * CHARACTERS_PER_TOKEN
    # A client may send half of a surrogate pair; "surrogatepass" gives it bytes like any other character.
    starts = range(0, len(text) - size + 1, size)
    if text.isascii():  # one byte a character: encoded once, not block by block
        raw = text.encode("ascii")
        return _chain(_split(raw, size), salt)
    return _chain((text[start : start + size].encode("utf-8", "surrogatepass") for start in starts), salt)


def fingerprint_prompt(text: str, model: str, adapter: str | None) -> Fingerprint:
    """The fingerprint of a text for a model and an adapter. All who share their knowledge of servers have this one.

    Args:
        text: the prompt.
        model: the base model; "" = it is not known.
        adapter: by which its cached values differ from the model's; None = none.
    """
    return fingerprint_text(text, adapter or model)


def _split(raw: bytes, size: int) -> list[bytes]:
    """The whole blocks."""
    return [block for (block,) in iter_unpack(f"{size}s", raw[: len(raw) // size * size])]


def _chain(blocks: Iterable[bytes], salt: str) -> Fingerprint:
    previous = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    digests = []
    copy = _EMPTY.copy  # cheaper than a new hash with its arguments
    for block in blocks:
        hasher = copy()
        hasher.update(previous + block)
        previous = hasher.digest()
        digests.append(previous)
    return Fingerprint(tuple([value >> _SPARE_BITS for value in unpack(f"<{len(digests)}Q", b"".join(digests))]))
