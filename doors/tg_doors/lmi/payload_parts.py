"""An answer of LMI's -> the framing in which SageMaker streams it: AWS's event stream, a part for each piece.

Source: the specification of `application/vnd.amazon.eventstream`, and botocore, which reads it.
"""

import struct
from typing import Any, Final
from zlib import crc32

from typing_extensions import override

from tg_gateway.dialects import Output, WrappingWriter, Writer, join_output

EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
CONTENT_TYPE_HEADER: Final = "X-Amzn-SageMaker-Content-Type"
"""The content type of all parts together."""
_TEXT_TYPE: Final = 7
"""The type of a header whose value is text."""


class PayloadPartsWriter(WrappingWriter[Any]):
    """Wraps another writer; each output becomes a part.

    Args:
        writer: the writer of the answer.
    """

    def __init__(self, writer: Writer[Any]) -> None:
        super().__init__(writer)
        self.headers = {**writer.headers, CONTENT_TYPE_HEADER: writer.content_type}
        self.content_type, self.keep_alive = EVENT_STREAM, b""

    @override
    def change(self, data: Output) -> bytes:
        return encode_part(join_output(data))


def encode_part(payload: bytes) -> bytes:
    """The message of a part; empty for an empty part."""
    if not payload:
        return b""
    lengths = struct.pack("!II", 16 + len(_HEADERS) + len(payload), len(_HEADERS))
    # The lengths have a checksum of their own; the last one is of all that comes before it.
    checked = lengths + struct.pack("!I", crc32(lengths)) + _HEADERS + payload
    return checked + struct.pack("!I", crc32(checked))


_HEADERS: Final = b"".join(
    struct.pack("!B", len(name)) + name + struct.pack("!BH", _TEXT_TYPE, len(value)) + value
    for name, value in (
        (b":message-type", b"event"),
        (b":event-type", b"PayloadPart"),
        (b":content-type", b"application/octet-stream"),
    )
)
