"""Gateway's bytes -> events: an incremental reader of server-sent events (WHATWG HTML, section 9.2.6)."""

from tg_schema.errors import ProtocolError

LONGEST = 8 * 1024 * 1024
"""Bytes of one event: more than any record that a bus carries."""


class ServerSentEvents:
    """Turns bytes, however they are cut, into the data of whole events; comments and names are passed over."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._first = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that these bytes complete. An event cut off by the stream's end is none.

        Raises:
            ProtocolError: an event is longer than the limit.
        """
        if not received:
            return []
        lines = self._with_line_feeds(received).split(b"\n")
        rest = lines.pop()
        events: list[bytes] = []
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
            self._line_size = 0
            for line in lines:
                self._take(line, events)
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
        if self._line_size + self._data_size > self._longest:
            raise ProtocolError(f"the gateway sent an event of more than {self._longest} bytes")
        return events

    def _with_line_feeds(self, received: bytes) -> bytes:
        """CR and CR LF are line ends too; the LF of a pair may come with the next bytes."""
        second_half = self._after_cr and received[0] == 0x0A
        self._after_cr = received[-1] == 0x0D
        if second_half:
            received = received[1:]
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in received else received

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_size += len(value) + 1
