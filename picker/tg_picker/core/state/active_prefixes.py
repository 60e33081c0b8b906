"""Placements -> server state: the prompt prefixes in use on one server, which need no cache a second time."""

from functools import cache

from tg_picker.core.interface import Fingerprint

_LEVEL_BITS = 2


def marks_of(prefix: Fingerprint) -> tuple[int, ...]:
    """The hashes at the end of a prompt's first block, of its first 4, 16, 64 and so on: a long prompt in few words."""
    blocks = prefix.blocks
    return tuple([blocks[at] for at in _places(len(blocks).bit_length())])


@cache
def _places(bit_length: int) -> tuple[int, ...]:
    return tuple((1 << bits) - 1 for bits in range(0, bit_length, _LEVEL_BITS))


class ActivePrefixes:
    """For each block that is a mark: how many requests in flight have it in their prompt's prefix.

    Attributes:
        users: number of requests by mark; read only. A prompt's first block is always a mark.
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
        """Count its end. Each use is ended once."""
        for mark in marks:
            left = self.users[mark] - 1
            if left:
                self.users[mark] = left
            else:
                del self.users[mark]

    def shared_blocks(self, prefix: Fingerprint, matched: int) -> tuple[int, int]:
        """Estimates how many of a prompt's cached blocks other requests use, and how many requests do.

        Between two marks nothing is known. If the last mark is in use, all cached blocks probably are.
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
        """Estimates how many blocks of an ended request's prompt other requests still use.

        Args:
            marks: the marks of the prompt.
            matched: blocks of it that were cached when it came: probably those that it has in common with others.
        """
        users = self.users
        for level in range(len(marks) - 1, -1, -1):
            if marks[level] in users:
                known = 1 << _LEVEL_BITS * level
                return matched if known <= matched < known << _LEVEL_BITS else known
        return 0
