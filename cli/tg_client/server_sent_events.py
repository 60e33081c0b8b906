"""Gateway's bytes -> events: an incremental reader of server-sent events (WHATWG HTML, section 9.2.6)."""

from tg_schema.errors import ProtocolError

LONGEST = 8 * 1024 * 1024
"""Bytes of one event: more than any record that a bus carries."""


class ServerSentEvents:
    """Turns bytes, however they are cut, into the data of whole events; comments and names are passed over."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0
        self._after_cr = False
        self._first = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that these bytes complete. An event cut off by the stream's end is none.

        Raises:
            ProtocolError: an event is longer than the limit.
        """
        if not received:
            return []
        received = self._with_line_feeds(received)
        self._held += len(received)
        end = received.find(b"\n")
        if end < 0:
            self._line.append(received)
            self._check()
            return []
        lines = received.split(b"\n")
        lines[0] = b"".join((*self._line, lines[0]))
        rest = lines.pop()
        events = [data for line in lines if (data := self._take(line)) is not None]
        self._line = [rest]
        self._held = len(rest) + sum(map(len, self._data))
        self._check()
        return events

    def _with_line_feeds(self, received: bytes) -> bytes:
        """CR and CR LF are line ends too; the LF of a pair may come with the next bytes."""
        skipped = self._after_cr and received[0] == 0x0A
        self._after_cr = received[-1] == 0x0D
        if skipped:
            received = received[1:]
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in received else received

    def _take(self, line: bytes) -> bytes | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        data = b"\n".join(self._data)
        self._data.clear()
        return data

    def _check(self) -> None:
        if self._held > self._longest:
            raise ProtocolError(f"the gateway sent an event of more than {self._longest} bytes")
