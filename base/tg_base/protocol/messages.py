"""What requestors and processors say to each other beside requests; never needed by a plain peer."""

from typing import Annotated, Literal, cast

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""How many of something, or the number of something."""
Last = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
"""The number of the last one; -1 = there is none."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


FrameKind = Literal["record", "end", "accepted", "confirm", "returned"]
_NOTHING = msgspec.Raw(b"null")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One stream's part of a link message.

    Attributes:
        kind: what it says. "record" = a response record, of which more follow. "end" = the last response record.
            "accepted" = the processor works on the request. "confirm" = it holds the request, which may have been
            delivered before, and asks for a `Confirmed`. "returned" = it has not begun, and another one should.
        stream: the stream's id.
        attempt: which attempt at the stream this answers.
        record: of "record" and "end": the response record, a JSON object.
        question: of "confirm": the number that the `Confirmed` has to repeat.
    """

    kind: FrameKind
    stream: str
    attempt: Count
    record: msgspec.Raw = _NOTHING
    question: Count = 0

    @property
    def last(self) -> bool:
        """Whether nothing of this attempt follows."""
        return self.kind in {"end", "returned"}


class StreamKey(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one stream."""

    stream: str
    attempt: Count


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Requestor -> processor: stop these, now or when you take them from the queue within `ttl` seconds."""

    streams: tuple[StreamKey, ...]
    ttl: Seconds


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """Everything of a link up to `seq` has arrived, in the receiver's epoch.

    A requestor that drops a link, because it believed the processor dead, starts a new epoch when the link is heard
    again. Acknowledgements from older epochs are ignored.
    """

    epoch: Count
    seq: Last


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Requestor -> processor, once a second: what has arrived by link, and which streams were cancelled lately."""

    inbox: str
    acks: dict[str, Ack]
    cancelled: tuple[StreamKey, ...] = ()


class Nack(msgspec.Struct, frozen=True, tag="nack"):
    """Requestor -> processor: send the messages of this link after `ack` again."""

    inbox: str
    link: str
    ack: Ack


class Announce(msgspec.Struct, frozen=True, tag="announce"):
    """New requestor -> the processors of a queue: announce your presence now, not with the next heartbeat."""


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """Requestor -> processor: begin. It answers the "confirm" frame of that number alone, and expires."""

    key: StreamKey
    question: Count


Control = Cancel | Heartbeat | Nack | Confirmed | Announce
CONTROL = cast("type[Control]", Control)
"""The union as `decode` takes it."""


class LinkState(msgspec.Struct, frozen=True, array_like=True):
    """One link as its processor sees it.

    Attributes:
        link: its name, which ends in /NUMBER.
        sent: how far it has sent; -1 = nothing yet.
        running: how many requests the processor works on for that inbox.
        first: its number when it was opened; streams of a link to the same inbox with a lower number are over.
    """

    link: str
    sent: Last
    running: Count = 0
    first: Count = 0


class Presence(msgspec.Struct, frozen=True):
    """Processor -> every requestor, once a second: what it serves and how busy it is.

    Attributes:
        processor: its id, new at every start.
        queues: the request topics that it reads.
        models: the models that it answers to.
        capacity: requests that it works on side by side.
        in_flight: requests that it works on now.
        links: by inbox, how far it has sent there: a lost last message is noticed by this.
        leaving: it takes no more requests.
        features: what its service can do beyond the least (`tg_schema.features`).
        seconds: how long a request took lately, on the average; 0 = none has ended yet.
        newest: the highest number that a link of it has had; -1 = it does not say.
        taken: how many requests it has taken from its queues; -1 = it does not say.
        waited: the longest that a request taken since the announcement before had waited, in seconds.
    """

    processor: str
    queues: tuple[str, ...]
    capacity: Count
    in_flight: Count
    models: tuple[str, ...] = ()
    links: dict[str, LinkState] = {}
    leaving: bool = False
    features: tuple[str, ...] = ()
    seconds: Seconds = 0.0
    newest: Last = -1
    taken: Last = -1
    waited: Seconds = 0.0

    def over_below(self, inbox: str) -> int:
        """Links to this inbox with a lower number are over, and so are their streams, whatever was heard of them."""
        state = self.links.get(inbox)
        return self.newest + 1 if state is None else state.first
