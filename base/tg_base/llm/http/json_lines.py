"""Bytes of a body -> lines of JSON: the stream format application/x-ndjson, one object per line."""

from tg_base.llm.http.stream_reader import MAX_EVENT_BYTES
from tg_schema.errors import ProtocolError


class JsonLines:
    """Incremental splitter: any chunking of the same bytes gives the same lines.

    Only LF ends a line (JSON treats a CR before it as white space): U+2028 and U+0085 are text. A last line without
    LF is dropped, because it may be truncated.
    """

    def __init__(self, longest: int = MAX_EVENT_BYTES) -> None:
        self._longest = longest
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> list[bytes]:
        """The lines that `received` completes, in order, without blank ones.

        Raises:
            ProtocolError: a line is longer than the limit.
        """
        *lines, rest = received.split(b"\n")
        if lines and self._partial:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
            self._size = 0
        if rest:
            # A list, joined once: a long line that comes in many pieces would be copied with each.
            self._partial.append(rest)
            self._size += len(rest)
        if self._size > self._longest:
            raise ProtocolError(f"the server sent a line of more than {self._longest} bytes")
        return [line for line in lines if line.strip()]
