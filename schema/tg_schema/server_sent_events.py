"""Bytes of a socket -> events of an HTTP stream (WHATWG HTML, "Server-sent events", section 9.2.6)."""

from tg_schema.errors import ProtocolError

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Largest event in bytes: more than any record on a bus; a chunk of an answer has a few hundred."""

_FIELD, _ID = b"data", b"id"
_DATA = b"data: "
_FEED, _RETURN = ord("\n"), ord("\r")
_SHORT_EVENT_BYTES = 1024
_MARK = b"\xef\xbb\xbf"


class ServerSentEvents:
    """Incremental decoder: any split of the same bytes gives the same events.

    Lines end only with LF, CR or CRLF: U+2028 and U+0085 are text. It works on bytes, so that a character may be split
    anywhere. It keeps only the data of an event and skips comments, `event` and `retry`. An event that the end of the
    stream truncates is dropped.

    Attributes:
        last_id: the last `id` so far; empty = none.
    """

    __slots__ = (
        "_after_return", "_begun", "_data", "_data_size", "_longest", "_partial", "_partial_size",
        "last_id",
    )  # fmt: skip

    def __init__(self, longest: int = MAX_EVENT_BYTES) -> None:
        self.last_id = b""
        self._longest = longest
        self._begun = False
        self._after_return = False
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that `received` completes, in order.

        Raises:
            ProtocolError: a line, or an event's data, is longer than the limit.
        """
        # Under light load, nearly every read is one whole event of one line. A number is found sooner than a byte.
        if received[:6] == _DATA and received[-2:] == b"\n\n" and _RETURN not in received:
            line = received[6:-2]
            if (
                _FEED not in line
                and len(received) <= self._longest
                and not (self._partial_size or self._data or self._after_return)
            ):
                self._begun = True
                return [line]
        events: list[bytes] = []
        if _RETURN in received or self._after_return:
            received = self._with_line_feeds(received)
        elif not self._data and self._partial_size <= _SHORT_EVENT_BYTES:
            events, received = self._whole_events(received)
            if not received:
                return events
        received = self._without_filler(received)
        first, *rest = received.split(b"\n")
        self._keep(first)
        if not rest:
            return events
        rest.insert(0, b"".join(self._partial))
        self._partial.clear()
        self._partial_size = 0
        self._keep(rest.pop())
        for line in rest:
            self._line(line, events)
        return events

    def _whole_events(self, received: bytes) -> tuple[list[bytes], bytes]:
        """Fast path for nearly every read: the whole events at its beginning, of one `data` line each; and the rest."""
        whole = b"".join((*self._partial, received)) if self._partial else received
        end = whole.rfind(b"\n\n")
        if end < 0 or len(whole) > self._longest or whole[:6] != _DATA:
            return [], received
        events = whole[6:end].split(b"\n\ndata: ")
        if whole.count(_FEED, 0, end) != 2 * (len(events) - 1):
            return [], received
        self._begun = True
        if self._partial:
            self._partial.clear()
            self._partial_size = 0
        return events, whole[end + 2 :]

    def _without_filler(self, received: bytes) -> bytes:
        """Only the last line if no other has data or an id: thousands of comments and blank lines cost little."""
        end = received.rfind(b"\n") + 1
        if not end or self._data or not self._begun or self._partial_size > _SHORT_EVENT_BYTES:
            return received
        begun = b"".join(self._partial)
        whole = begun + received if begun else received
        if whole.find(_FIELD, 0, len(begun) + end) >= 0 or whole.find(_ID, 0, len(begun) + end) >= 0:
            return received
        self._partial.clear()
        self._partial_size = 0
        return received[end:]

    def _with_line_feeds(self, received: bytes) -> bytes:
        if self._after_return and received.startswith(b"\n"):
            received = received[1:]
            self._after_return = False
        if received:
            # It may be half of a CRLF.
            self._after_return = received.endswith(b"\r")
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, part: bytes) -> None:
        """Buffer the beginning of a line until its end comes."""
        if part:
            self._partial.append(part)
            self._partial_size += len(part)
            self._check(self._partial_size)

    def _check(self, size: int) -> None:
        if size > self._longest:
            raise ProtocolError(f"the server sent an event of more than {self._longest} bytes")

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            # A stream may begin with a byte order mark, which is no part of its first field.
            line = line.removeprefix(_MARK)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_size = 0
            return
        name, _, value = line.partition(b":")
        if name == _ID:
            self.last_id = value.removeprefix(b" ")
        if name == _FIELD:
            # One blank behind the colon belongs to neither.
            self._data.append(value.removeprefix(b" "))
            self._data_size += len(line) + 1
            self._check(self._data_size)
