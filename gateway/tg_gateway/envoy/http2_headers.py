"""HEADERS and CONTINUATION frames -> a request's headers (RFC 9113, section 4.3, and RFC 7541)."""

from collections.abc import Mapping

import hpack

from tg_gateway.envoy.http2_frames import (
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    ConnectionFault,
    ErrorCode,
    strip_padding,
)

MAX_HEADER_BYTES = 32 * 1024
"""Of the fields of one request, each counted with 32 bytes more (RFC 9113, section 6.5.2). More of them are read, since
the next block depends on them, and not kept."""
MAX_READ_BYTES = 4 * MAX_HEADER_BYTES
"""The same, and of a block as it is encoded: beyond it the connection ends."""
MAX_CONTINUATIONS = 8
"""Of one block. Frames without a byte would never reach the limit of bytes."""
MAX_KNOWN = 32
_PRIORITY_BYTES = 5
_FIELD_COST = 32

Fields = Mapping[bytes, bytes]
"""Of a repeated name the last value."""
TOO_LARGE: Fields = {}
"""In place of fields that exceed MAX_HEADER_BYTES: it is to be told by its identity."""


class HeaderReader:
    """Reads the blocks of one connection, in their order: the state of the compression goes from one to the next.

    Attributes:
        stream: the number of the stream whose block is not complete, so that nothing but its rest may follow; 0 = none.
    """

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MAX_READ_BYTES)
        self._known: dict[bytes, Fields] = {}
        self._block = b""
        self._continuations = 0
        self._ends_stream = False
        self.stream = 0

    def begin(self, flags: int, stream: int, payload: bytes) -> tuple[Fields, bool] | None:
        """Take a HEADERS frame; return the fields or TOO_LARGE, and whether the stream ends. None = more frames follow.

        Raises:
            ConnectionFault: the block is malformed or larger than is read.
        """
        block = strip_padding(flags, payload)
        if flags & HAS_PRIORITY:
            if len(block) < _PRIORITY_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a HEADERS frame is too short for its priority")
            block = block[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            return self._decode(block), bool(flags & END_STREAM)
        self.stream, self._block, self._continuations = stream, block, 0
        self._ends_stream = bool(flags & END_STREAM)
        return None

    def proceed(self, flags: int, payload: bytes) -> tuple[Fields, bool] | None:
        """Take a CONTINUATION frame of `stream`; return as `begin` does.

        Raises:
            ConnectionFault: as `begin`.
        """
        self._continuations += 1
        self._block += payload
        if len(self._block) > MAX_READ_BYTES or self._continuations > MAX_CONTINUATIONS:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a request's headers are too large")
        if not flags & END_HEADERS:
            return None
        self.stream = 0
        return self._decode(self._block), self._ends_stream

    def _decode(self, block: bytes) -> Fields:
        # Envoy sends the same block for each request. Huffman's code in Python takes more than the rest of a request.
        if (known := self._known.get(block)) is not None:
            return known
        size, newest, limit = self._table()
        try:
            found = self._decoder.decode(block, raw=True)
        except hpack.OversizedHeaderListError:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a request's headers are too large") from None
        except hpack.HPACKError:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "a request's headers cannot be decoded") from None
        fields: Fields = dict(found)
        if sum(len(name) + len(value) + _FIELD_COST for name, value in found) > MAX_HEADER_BYTES:
            fields = TOO_LARGE
        size_now, newest_now, limit_now = self._table()
        if newest_now is not newest or (size_now, limit_now) != (size, limit):
            # What a block says depends on the table, so that nothing that was known is known any more.
            self._known.clear()
        elif fields is not TOO_LARGE and len(self._known) < MAX_KNOWN:
            self._known[block] = fields
        return fields

    def _table(self) -> tuple[int, object, int]:
        """What differs where a block has changed the dynamic table: each new entry is an object of its own."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return len(entries), entries[0] if entries else None, table.maxsize
