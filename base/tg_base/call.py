"""The properties of a request: written by the requestor, read by the processor, none needed by a plain peer."""

from dataclasses import dataclass
from typing import Self

from tg_base.bus.api import Delivery
from tg_base.frames import StreamKey
from tg_schema.errors import BadRequest

FRESH = 0.05
"""Seconds of age below which a request is taken for new: no processor takes one, shows a chunk and dies so quickly."""


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, until when, and where the answer goes.

    Attributes:
        key: stream id and attempt.
        reply: the requestor's inbox; None = the flow's response topic.
        remaining: seconds until the requestor gives up; None = it does not say.
        fresh: whether it can't have been delivered before; a bus may deliver again what a dead processor, or a dead
            broker, did not have time to note as taken.
        traceparent: W3C trace context, where there is one.
    """

    key: StreamKey
    reply: str | None = None
    remaining: float | None = None
    traceparent: str | None = None
    fresh: bool = True

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
            written["deadline"] = str(int(self.remaining * 1000))
        if self.traceparent is not None:
            written["traceparent"] = self.traceparent
        return written

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        """Read them from a message; the time that it has waited is taken off.

        Raises:
            BadRequest: no `id`, or a number that is none.
        """
        properties = delivery.properties
        stream = properties.get("id")
        if not stream:
            raise BadRequest("the message has no property `id`")
        try:
            attempt = int(properties.get("attempt", "1"))
            deadline = properties.get("deadline")
            remaining = None if deadline is None else int(deadline) / 1000 - delivery.age
        except ValueError:
            raise BadRequest("the properties `attempt` and `deadline` must be whole numbers") from None
        reply = properties.get("reply")
        fresh = delivery.age < FRESH
        return cls(StreamKey(stream, attempt), reply, remaining, properties.get("traceparent"), fresh)
