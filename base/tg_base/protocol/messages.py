"""What requestors and processors say to each other beside requests; never needed by a plain peer."""

from typing import Annotated, cast

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""How many of something, or the number of something."""
Last = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
"""The number of the last one; -1 = there is none."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One stream's part of a link message.

    Attributes:
        stream: the stream's id.
        attempt: which attempt at it this answers.
        last: nothing of this attempt follows.
        record: the response record, a JSON object; JSON null = the processor has accepted the request and works on it;
            a JSON number = it has the request, which may have been delivered before, and this is the number of its
            question whether the answer is still wanted; JSON false = it has not begun, and somebody else should.
    """

    stream: str
    attempt: Count
    last: bool
    record: msgspec.Raw = msgspec.Raw(b"null")


class StreamKey(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one stream."""

    stream: str
    attempt: Count


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Requestor -> processor: stop these, now or when you take them from the queue within `ttl` seconds."""

    streams: tuple[StreamKey, ...]
    ttl: Seconds


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """What a requestor has of a link: everything up to `seq`, with the receiving end of that number.

    A requestor that forgets a link, because it took the processor for dead, begins with a new end. So a word that comes
    late is told from a word of somebody who has forgotten.
    """

    end: Count
    seq: Last


class Heartbeat(msgspec.Struct, frozen=True, tag="beat"):
    """Requestor -> processor: I live, I have so much of these links, and I left these."""

    inbox: str
    acknowledged: dict[str, Ack]
    cancelled: tuple[StreamKey, ...] = ()


class Nack(msgspec.Struct, frozen=True, tag="resend"):
    """Requestor -> processor: send this link's messages again, those after what I have."""

    inbox: str
    link: str
    have: Ack


class Announce(msgspec.Struct, frozen=True, tag="announce"):
    """Requestor -> the processors of a queue: announce yourselves now, I have just come."""


class Confirm(msgspec.Struct, frozen=True, tag="wanted"):
    """Requestor -> processor: yes, begin. Answers the question of that number alone, and is good for a while only."""

    key: StreamKey
    question: Count


Control = Cancel | Heartbeat | Nack | Confirm | Announce
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
    """Processor -> everybody, once a beat: who I am, what I serve, how busy I am.

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
