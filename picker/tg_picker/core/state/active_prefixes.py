"""Placements -> server state: the prompt prefixes in use on one server; sharing them takes no more KV cache."""

from functools import cache

from tg_picker.core.interface import Fingerprint

_LEVEL_BITS = 2


def marks_of(prefix: Fingerprint) -> tuple[int, ...]:
    """Hashes that mark a long prompt in few numbers: those at the end of its first block, its first 4, 16 and so on."""
    blocks = prefix.blocks
    return tuple([blocks[at] for at in _places(len(blocks).bit_length())])


@cache
def _places(bit_length: int) -> tuple[int, ...]:
    return tuple((1 << bits) - 1 for bits in range(0, bit_length, _LEVEL_BITS))


class ActivePrefixes:
    """Counts for each marked block how many requests in flight have it in the prefix of their prompt.

    Attributes:
        users: the number of requests by mark; do not change it. A prompt's first block is always a mark.
    """

    def __init__(self) -> None:
        self.users: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.users)

    def use(self, marks: tuple[int, ...]) -> None:
        """Count a request."""
        for mark in marks:
            self.users[mark] = self.users.get(mark, 0) + 1

    def end(self, marks: tuple[int, ...]) -> None:
        """Count the end of a request. Each use must be ended once."""
        for mark in marks:
            left = self.users[mark] - 1
            if left:
                self.users[mark] = left
            else:
                del self.users[mark]

    def shared_blocks(self, prefix: Fingerprint, matched: int) -> tuple[int, int]:
        """Estimate how many of a prompt's cached blocks other requests use, and how many requests do.

        Nothing is known about blocks between two marks. If the last mark is in use, probably all cached blocks are.
        """
        blocks, users = prefix.blocks, self.users
        matched = min(matched, len(blocks))
        if matched <= 0 or not users:
            return 0, 0
        last = bits = (matched.bit_length() - 1) // _LEVEL_BITS * _LEVEL_BITS
        while not (count := users.get(blocks[(1 << bits) - 1], 0)):
            if not bits:
                return 0, 0
            bits -= _LEVEL_BITS
        return (matched if bits == last else 1 << bits), count

    def still_used(self, marks: tuple[int, ...], matched: int) -> int:
        """Estimate how many blocks of an ended request's prompt other requests still use.

        Args:
            marks: the marks of the prompt.
            matched: the blocks of it that were cached when it arrived, which probably other prompts share.
        """
        users = self.users
        for level in range(len(marks) - 1, -1, -1):
            if marks[level] in users:
                known = 1 << _LEVEL_BITS * level
                return matched if known <= matched < known << _LEVEL_BITS else known
        return 0
