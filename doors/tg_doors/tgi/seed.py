"""TGI's seeds, which have 64 bits without a sign (`u64`), <-> those of records, which have one."""

from typing import Final

SEEDS: Final = 2**64
"""How many there are."""


def sign_seed(seed: int) -> int:
    """The seed with the same bits that a record may have."""
    return seed if seed < SEEDS // 2 else seed - SEEDS


def unsign_seed(seed: int | None) -> int | None:
    """The seed of a record as TGI tells it; None = it has none."""
    return None if seed is None else seed % SEEDS
