"""Requestor -> processor: the properties of a request, and of the parts of its body. A plain peer writes only `id`."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import msgspec

from tg_base.bus import Delivery
from tg_base.protocol.clocks import PublisherClocks
from tg_base.protocol.messages import StreamKey
from tg_base.telemetry import Span
from tg_schema.errors import BadRequest

FRESH_SECONDS = 0.05
"""A younger request cannot be a redelivery: no processor takes one, sends a chunk and dies so quickly."""

MAX_NUMBER = 2**53
"""The largest number in a property; above it, not every whole number is a float."""
_MAX_DIGITS = 16
QUEUE_PROPERTY = "queue"
"""The property that marks a request on a control topic, and names the work queue that it was meant for."""
MAX_DEADLINE_MILLISECONDS = 10**12
"""Thirty years; a longer deadline is the same as none."""
MAX_ATTEMPT = 1_000_000
"""The highest valid attempt number; our requestor makes a few."""
MAX_REQUEST_BYTES = 48 * 1024 * 1024
"""Size of the largest request that travels in parts."""
WINDOW_BYTES = 2 * 1024 * 1024
"""Bytes that are sent for one "fetch" frame, in one message if the bus takes it; no more of a body is in flight."""


class RequestHeaders(msgspec.Struct, frozen=True):
    """The sender, deadline and reply address of a request.

    Attributes:
        key: stream id and attempt.
        reply: the requestor's inbox; None = the flow's response topic.
        remaining: seconds until the requestor gives up without a first record, so that beginning later is useless;
            None = not stated.
        delay: queue time in seconds; None = not known, because the requestor has not sent enough heartbeats yet.
        least_delay: queue time in seconds that is proven, also where `delay` is not known.
        fresh: whether it cannot be a redelivery. A bus redelivers a request whose acknowledgement was lost with a
            processor or a broker that died.
        size: bytes of a body that is fetched in parts (`Part`); 0 = the message holds it.
        queue: the work queue that a request sent to one process was meant for; None = it came through its queue.
        span: the trace of the request through all hops; None = not known.
        kept: whether the answer continues for a while without its requestor, so that another one can adopt it.
    """

    key: StreamKey
    reply: str | None = None
    remaining: float | None = None
    delay: float | None = 0.0
    span: Span | None = None
    fresh: bool = True
    size: int = 0
    least_delay: float = 0.0
    queue: str | None = None
    kept: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """The message's properties; `deadline` is in milliseconds from the moment of publishing."""
        left, span = self.remaining, self.span
        written = {
            "id": self.key.stream,
            "attempt": str(self.key.attempt),
            "reply": self.reply,
            "deadline": None if left is None else str(int(min(left * 1000, MAX_DEADLINE_MILLISECONDS))),
            "size": str(self.size) if self.size else None,
            "kept": "1" if self.kept else None,
            QUEUE_PROPERTY: self.queue,
        }
        if span is not None:
            written |= {"request": span.request, "traceparent": span.traceparent, "parent": span.parent}
            written |= {"caller": span.caller, "payer": span.payer, "door": span.door}
        return {name: text for name, text in written.items() if text is not None}

    @classmethod
    def of(cls, delivery: Delivery, clocks: PublisherClocks) -> Self:
        """Read them from a message; its queue time is subtracted from the deadline.

        A plain peer's request counts as fresh, since a plain peer cannot confirm it.

        Raises:
            BadRequest: properties that are not text, no `id`, a number that is malformed or out of range, or a `size`
                without a `reply`, from which the body could be fetched.
        """
        properties = delivery.properties
        stream = properties.get("id")
        if not stream:
            raise BadRequest("the message has no property `id`")
        attempt = whole_number("attempt", properties.get("attempt", "1"), least=1, most=MAX_ATTEMPT)
        remaining, deadline = None, properties.get("deadline")
        if deadline is not None:
            milliseconds = whole_number("deadline", deadline, most=MAX_DEADLINE_MILLISECONDS)
            remaining = milliseconds / 1000
        reply = properties.get("reply")
        size = whole_number("size", properties["size"], most=MAX_REQUEST_BYTES) if "size" in properties else 0
        if size and reply is None:
            raise BadRequest("a message with the property `size` needs `reply`, from which its body is fetched")
        delay, least_delay = (0.0, 0.0) if reply is None else clocks.delays(reply, delivery.age)
        if remaining is not None and delay is not None:
            remaining -= delay
        fresh = delay is not None and delay < FRESH_SECONDS and not delivery.redelivered
        asked, parent, traceparent = properties.get("request"), properties.get("parent"), properties.get("traceparent")
        payer, door = properties.get("payer"), properties.get("door")
        span = Span.from_peer(stream, asked, parent, traceparent, properties.get("caller"), payer=payer, door=door)
        kept = reply is not None and "kept" in properties
        return cls(StreamKey(stream, attempt), reply, remaining, delay, span, fresh, size, least_delay, kept=kept)

    @classmethod
    def of_direct(cls, delivery: Delivery, clocks: PublisherClocks) -> Self:
        """Read them from a request on a control topic, which has the property `QUEUE_PROPERTY`.

        It never counts as fresh: its requestor also queues it if it hears nothing soon, and must then choose between
        the two copies.

        Raises:
            BadRequest: as `of`; or no `reply`.
        """
        call = cls.of(delivery, clocks)
        if call.reply is None:
            raise BadRequest(f"a message with the property `{QUEUE_PROPERTY}` needs `reply`")
        return msgspec.structs.replace(call, queue=delivery.properties[QUEUE_PROPERTY], fresh=False)

    @classmethod
    def of_unreadable(cls, delivery: Delivery) -> Self | None:
        """The requestor of a message that `of` refuses, if at least its `id` can be read."""
        with suppress(BadRequest):
            stream = delivery.properties.get("id")
            if stream:
                return cls(StreamKey(stream, 1), delivery.properties.get("reply"))
        return None


class Part(msgspec.Struct, frozen=True):
    """Which bytes a part of a request's body holds: a message on its processor's control topic.

    The queue's message of such a request has no body, and the property `size`. The processor that takes it asks for the
    body with "fetch" frames.

    Attributes:
        key: the attempt that requested the parts; parts of an older attempt are ignored.
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


def whole_number(name: str, text: str, *, least: int = 0, most: int = MAX_NUMBER) -> int:
    """The number in a property.

    Args:
        name: the property, for the error.
        text: at most 16 decimal digits, and nothing else: no sign, blank or underscore.
        least: smallest valid value.
        most: largest valid value.

    Raises:
        BadRequest: the text is not such a number.
    """
    # The length first: Python refuses to read thousands of digits, with an error of its own.
    number = int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else -1
    if not least <= number <= most:
        raise BadRequest(f"the property `{name}` must be a whole number from {least} to {most}")
    return number
