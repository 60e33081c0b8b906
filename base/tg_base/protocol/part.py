"""Requestor -> processor: one part of a large request's body, a message on the processor's control topic.

The queue's message of such a request has no body, and the property `size`. The processor that takes it asks for the
body with "fetch" frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tg_base.protocol.messages import StreamKey
from tg_base.protocol.request_headers import MAX_ATTEMPT, MAX_REQUEST_BYTES, whole_number

WINDOW_BYTES = 2 * 1024 * 1024
"""Bytes that are sent for one "fetch" frame, in one message if the bus takes it; no more of a body is in flight."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which bytes a part holds.

    Attributes:
        key: the attempt that asked for it; an older one's parts are ignored.
        offset: the offset of its first byte in the request's body.
    """

    key: StreamKey
    offset: int

    @property
    def properties(self) -> dict[str, str]:
        """The message's properties."""
        return {"id": self.key.stream, "attempt": str(self.key.attempt), "offset": str(self.offset)}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Read them from a message; None = the message is not a part.

        Raises:
            BadRequest: a number that is malformed or out of range.
        """
        if "offset" not in properties:
            return None
        attempt = whole_number("attempt", properties.get("attempt", ""), least=1, most=MAX_ATTEMPT)
        offset = whole_number("offset", properties["offset"], most=MAX_REQUEST_BYTES)
        return cls(StreamKey(properties.get("id", ""), attempt), offset)
