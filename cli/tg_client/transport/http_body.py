"""Bytes of a connection -> the body of one answer, whichever way its length is given (RFC 9112, section 6)."""

from collections.abc import Mapping
from typing import Final, Literal

from tg_client.transport.errors import CompressedAnswer, NoHttp, WireError

MAX_LINE_BYTES: Final = 16 * 1024
"""Largest line of a chunk's size, and of a trailer."""
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")

_Next = Literal["size", "data", "line end", "trailer", "end"]


class HttpBody:
    """The body of one answer.

    Args:
        headers: of the answer, by their names in lower case.
        empty: whether its status allows no body.

    Attributes:
        complete: whether all of it was taken.
        reusable: whether the connection may be asked again after that.

    Raises:
        NoHttp: its length is malformed.
        CompressedAnswer: it is compressed, although that was not requested.
    """

    def __init__(self, headers: Mapping[str, str], *, empty: bool) -> None:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise CompressedAnswer
        coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length")
        wishes = {wish.strip() for wish in headers.get("connection", "").lower().split(",")}
        # With both headers, a proxy may have used the length: it is not certain where the next answer begins.
        self.reusable = "close" not in wishes and not (coding and length is not None)
        self._chunked = coding == "chunked"
        self._next: _Next = "size" if self._chunked else "data"
        # None = until the connection ends.
        self._left: int | None = 0
        if coding and not self._chunked:
            raise NoHttp
        if not self._chunked:
            self._left = None if length is None else _parse_length(length)
            self.reusable = self.reusable and length is not None
        if empty or (self._left == 0 and not self._chunked):
            self._next = "end"

    @property
    def complete(self) -> bool:
        """Whether all of it was taken."""
        return self._next == "end"

    def take(self, received: bytearray, *, ended: bool) -> bytes:
        """Remove this body's bytes from `received`, and return their content; b"" if more bytes are needed first.

        Args:
            received: the connection's bytes.
            ended: whether no more will come.

        Raises:
            WireError: the body is truncated or malformed; its earlier content was returned before.
        """
        parts: list[bytes] = []
        try:
            while self._next != "end" and (taken := self._step(received)) is not None:
                parts.append(taken)
        except WireError:
            # Return the earlier content first; the next call meets the same error again.
            if not any(parts):
                raise
        content = b"".join(parts)
        if ended and not content and self._next != "end":
            if self._left is not None:
                raise WireError
            self._next = "end"
        return content

    def _step(self, received: bytearray) -> bytes | None:
        """Go on by one piece; None if it has not come."""
        if self._next == "data":
            return self._take_data(received)
        end = received.find(b"\r\n", 0, MAX_LINE_BYTES)
        if end < 0:
            if len(received) >= MAX_LINE_BYTES:
                raise WireError
            return None
        line = bytes(received[:end])
        if self._next == "line end" and line:
            raise WireError
        if self._next == "size":
            self._left = _parse_chunk_size(line)
            self._next = "data" if self._left else "trailer"
        elif self._next == "line end":
            self._next = "size"
        elif not line:
            self._next = "end"
        del received[: end + 2]
        return b""

    def _take_data(self, received: bytearray) -> bytes | None:
        if not received:
            return None
        data = bytes(received if self._left is None else received[: self._left])
        del received[: len(data)]
        if self._left is not None:
            self._left -= len(data)
            if not self._left:
                self._next = "line end" if self._chunked else "end"
        return data


def _parse_chunk_size(line: bytes) -> int:
    """The size before a chunk's extensions, which nobody needs."""
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
        raise WireError
    return int(digits, 16)


def _parse_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise NoHttp
    return int(text)
