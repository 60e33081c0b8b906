"""JSON -> whether some characters occur more often than a limit, without looking at each byte of a megabyte."""

from typing import Final

MIN_LARGE_BYTES: Final = 128 * 1024
"""Size from which searching is cheaper than counting, which takes less than 0.1 ms in shorter text."""


def has_more_of(signs: tuple[bytes, ...], data: bytes, limit: int) -> bool:
    """Whether these one-byte characters together occur more than `limit` times in `data`."""
    if len(data) < MIN_LARGE_BYTES:
        return sum(map(data.count, signs)) > limit
    # `find` scans many bytes at a time, `count` one: it skips the text of an image or a mask quickly.
    for sign in signs:
        place = data.find(sign)
        while place >= 0:
            limit -= 1
            if limit < 0:
                return True
            place = data.find(sign, place + 1)
    return limit < 0
