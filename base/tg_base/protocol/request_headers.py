"""Requestor -> processor: the properties of a request. A plain peer writes only `id`."""

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
"""On a control topic it marks a request, and names the work queue that it was meant for."""
MAX_DEADLINE_MILLISECONDS = 10**12
"""Thirty years; a longer deadline is the same as none."""
MAX_ATTEMPT = 1_000_000
"""The highest valid attempt number; our requestor makes a few."""
MAX_REQUEST_BYTES = 48 * 1024 * 1024
"""Size of the largest request that travels in parts."""


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
        size: bytes of a body that is fetched in parts (`part.py`); 0 = the message holds it.
        queue: the work queue that it is for, of a request that was sent to one process; None = it came by that queue.
        span: the trace of the request through all hops; None = not known.
        kept: whether the answer goes on for a while without its requestor, for another one to adopt it.
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
        written = {"id": self.key.stream, "attempt": str(self.key.attempt)}
        if self.reply is not None:
            written["reply"] = self.reply
        if self.remaining is not None:
            written["deadline"] = str(int(min(self.remaining * 1000, MAX_DEADLINE_MILLISECONDS)))
        if self.size:
            written["size"] = str(self.size)
        if self.kept:
            written["kept"] = "1"
        if self.queue is not None:
            written[QUEUE_PROPERTY] = self.queue
        if self.span is not None:
            written |= {"request": self.span.request, "traceparent": self.span.traceparent}
            written |= {} if self.span.parent is None else {"parent": self.span.parent}
            written |= {} if self.span.caller is None else {"caller": self.span.caller}
            written |= {} if self.span.payer is None else {"payer": self.span.payer}
            written |= {} if self.span.door is None else {"door": self.span.door}
        return written

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
