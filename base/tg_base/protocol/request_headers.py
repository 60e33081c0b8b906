"""The properties of a request: written by the requestor, read by the processor, none needed by a plain peer."""

from dataclasses import dataclass
from typing import Self

from tg_base.bus import Delivery
from tg_base.protocol.messages import StreamKey
from tg_base.protocol.properties import whole_number
from tg_base.protocol.publisher_clocks import PublisherClocks
from tg_base.telemetry import Span
from tg_schema.errors import BadRequest

FRESH_SECONDS = 0.05
"""Seconds of waiting below which a request is new: no processor takes one, shows a chunk and dies so quickly."""

MAX_DEADLINE_MILLISECONDS = 10**12
"""Thirty years: who asks for more waits as good as for ever."""
MAX_ATTEMPT = 1_000_000
"""The largest number of an attempt; a requestor of ours makes a few."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Who asks, until when, and where the answer goes.

    Attributes:
        key: stream id and attempt.
        reply: the requestor's inbox; None = the flow's response topic.
        remaining: seconds until the requestor gives up if it hears nothing: then there is no use in beginning.
            None = it does not say.
        delay: seconds that the request has waited; None = not known, before its requestor has been heard.
        fresh: whether it can't have been delivered before; a bus may deliver again what a dead processor, or a dead
            broker, did not have time to note as taken.
        span: whose request it is, through all hops; None where it is not known.
    """

    key: StreamKey
    reply: str | None = None
    remaining: float | None = None
    delay: float | None = 0.0
    span: Span | None = None
    fresh: bool = True

    @property
    def doubtful(self) -> bool:
        """Whether its requestor must be asked before it is begun."""
        return self.reply is not None and not self.fresh

    @property
    def expired(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.remaining is not None and self.remaining <= 0

    @property
    def properties(self) -> dict[str, str]:
        """As they stand on the message; `deadline` is in milliseconds from the moment of publishing."""
        written = {"id": self.key.stream, "attempt": str(self.key.attempt)}
        if self.reply is not None:
            written["reply"] = self.reply
        if self.remaining is not None:
            written["deadline"] = str(int(min(self.remaining * 1000, MAX_DEADLINE_MILLISECONDS)))
        if self.span is not None:
            written |= {"request": self.span.request, "traceparent": self.span.traceparent}
            written |= {} if self.span.parent is None else {"parent": self.span.parent}
        return written

    @classmethod
    def of(cls, delivery: Delivery, clocks: PublisherClocks) -> Self:
        """Read them from a message; the time that it has waited is taken off.

        A plain peer's request counts as new, since there is nobody to ask.

        Raises:
            BadRequest: properties that are no text, no `id`, or a number that is none or out of its range.
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
        delay = 0.0 if reply is None else clocks.delay(reply, delivery.age)
        if remaining is not None and delay is not None:
            remaining -= delay
        fresh = delay is not None and delay < FRESH_SECONDS and not delivery.redelivered
        span = Span.from_peer(stream, *(properties.get(name) for name in ("request", "parent", "traceparent")))
        return cls(StreamKey(stream, attempt), reply, remaining, delay, span, fresh)
