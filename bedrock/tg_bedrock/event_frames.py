"""Bytes of Bedrock's answer -> events, by botocore's reader of AWS's event stream, which only this file imports."""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from tg_base.llm import MAX_EVENT_BYTES
from tg_schema.errors import ProtocolError

_NONSENSE = "the provider sent bytes that are not an answer of its API; check endpoint_url"


class EventFrames:
    """Splits one answer into frames of AWS's event stream and verifies their checksums. An event is JSON by its type.

    See `tg_base.llm.http.Frames`.
    """

    def __init__(self) -> None:
        self._buffer = EventStreamBuffer()
        self._held = 0

    def feed(self, received: bytes) -> Iterator[bytes]:
        """The events that `received` completes, in order.

        Raises:
            ProtocolError: these are no frames, or one is larger than `MAX_EVENT_BYTES`.
        """
        self._held += len(received)
        self._buffer.add_data(received)
        try:
            for message in self._buffer:
                self._held = 0
                yield _event_of(message)
        except (ParserError, ValueError, KeyError, struct.error):
            raise ProtocolError(_NONSENSE) from None
        if self._held > MAX_EVENT_BYTES:
            raise ProtocolError(_NONSENSE)


def _event_of(message: EventStreamMessage) -> bytes:
    headers: Any = message.headers  # the stubs take them for a number
    if headers.get(":message-type", "event") == "event":
        return b'{"%b":%b}' % (str(headers[":event-type"]).encode(), message.payload)
    code = headers.get(":exception-type") or headers.get(":error-code")
    return msgspec.json.encode({"failure": {"code": str(code), "text": message.payload.decode("utf-8", "replace")}})
