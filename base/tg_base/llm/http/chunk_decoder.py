"""Bytes of a body in HTTP's chunks (RFC 9112, section 7.1) -> its data, with less work than aiohttp's parser.

aiohttp's parser calls its reader for each part of each chunk, and nearly every event of an answer is its own chunk.
"""

import re
from typing import Final

MAX_SIZE_DIGITS = 7
"""The most digits of a chunk's size that are read here: chunks below 256 MiB."""

TINY_BYTES = 16
"""Bytes of data below which a chunk is tiny."""

MAX_TINY_CHUNKS = 64
"""Tiny chunks of one body that are read here; aiohttp's own reader counts chunks, and refuses too many."""

_LINE_END = b"\r\n"
_is_size = re.compile(rb"[0-9A-Fa-f]{1,%d}" % MAX_SIZE_DIGITS).fullmatch
_begins_size = re.compile(rb"[0-9A-Fa-f]{1,%d}\r?" % MAX_SIZE_DIGITS).fullmatch

_SIZES: Final[dict[bytes, int]] = {}
"""Sizes of chunks by their first lines, for lines of two or three digits that were read before."""


class ChunkDecoder:
    """Incremental decoder of plain chunks: any split of the same bytes gives the same data.

    Attributes:
        rest: the bytes from the first chunk that is not plain, for another parser: the empty last chunk, one with an
            extension, or bytes that are not a chunk. None = all chunks were plain. Do not call `feed` once it is set.
    """

    __slots__ = ("_held", "_left", "_tiny", "rest")

    def __init__(self) -> None:
        self.rest: bytes | None = None
        self._held = b""
        # Bytes until the next chunk begins: the rest of the data, and the end of its line.
        self._left = 0
        self._tiny = 0

    def feed(self, received: bytes) -> bytes:
        """The data of the chunks in `received`, also of a chunk that has not come whole.

        Raises:
            ValueError: a chunk is longer than its size.
        """
        parts: list[bytes] = []
        at, left, end = 0, self._left, len(received)
        # Nearly every read consists of whole chunks, of sizes that were seen before.
        while not left and not self._held:
            start = at + 4
            size = _SIZES.get(received[at:start])
            if size is None:
                start += 1
                size = _SIZES.get(received[at:start])
            if size is None or not received.startswith(_LINE_END, start + size):
                break
            parts.append(received[start : start + size])
            at = start + size + 2
            if at == end:
                return b"".join(parts)
        self._feed_rest(received[at:], parts)
        return b"".join(parts)

    def _feed_rest(self, received: bytes, parts: list[bytes]) -> None:
        """Add the data of any chunks to `parts`."""
        received = self._held + received
        self._held = b""
        at, left = 0, self._left
        while at < len(received):
            if left > 2:
                part = received[at : at + left - 2]
                parts.append(part)
            elif left:
                part = received[at : at + left]
                # aiohttp's parser takes this for a line's end too.
                if left == 2 and part[:1] == b"\n":
                    part, left = _LINE_END[1:], 1
                if part != _LINE_END[2 - left : 2 - left + len(part)]:
                    raise ValueError("a chunk is longer than its size")
            else:
                end = received.find(_LINE_END, at, at + MAX_SIZE_DIGITS + 2)
                size = self._read_size(received[at:end]) if end >= 0 else 0
                if not size:
                    self._keep(received[at:], whole_line=end >= 0)
                    break
                part, left = received[at : end + 2], size + 2 + end + 2 - at
            at += len(part)
            left -= len(part)
        self._left = left

    def _read_size(self, line: bytes) -> int:
        """The size in a chunk's first line; 0 if the chunk is the last one, or must go to the other parser."""
        size = int(line, 16) if _is_size(line) else 0
        if size < TINY_BYTES:
            self._tiny += 1
            return size if self._tiny <= MAX_TINY_CHUNKS else 0
        if 2 <= len(line) <= 3:
            _SIZES[line + _LINE_END] = size
        return size

    def _keep(self, received: bytes, *, whole_line: bool) -> None:
        """Hold the beginning of a size; leave all else to the other parser, which may refuse it at once."""
        if not whole_line and _begins_size(received):
            self._held = received
        else:
            self.rest = received
