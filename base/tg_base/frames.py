"""What requestors and processors say to each other beside requests; never needed by a plain peer."""

from typing import cast

import msgspec


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One stream's part of a link message.

    Attributes:
        stream: the stream's id.
        attempt: which attempt at it this answers.
        last: nothing of this attempt follows.
        record: the response record; JSON null = the processor has accepted the request and works on it; JSON true = it
            has the request, which is no longer fresh, and asks whether the answer is still wanted.
    """

    stream: str
    attempt: int
    last: bool
    record: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def accepted(self) -> bool:
        """Whether this says only that work has begun."""
        return bytes(self.record) == b"null"

    @property
    def asks(self) -> bool:
        """Whether this only asks; work has not begun."""
        return bytes(self.record) == b"true"


class StreamKey(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one stream."""

    stream: str
    attempt: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Requestor -> processor: stop these, now or when you take them from the queue within `ttl` seconds."""

    streams: tuple[StreamKey, ...]
    ttl: float


class Have(msgspec.Struct, frozen=True, array_like=True):
    """What a requestor has of a link: everything up to `seq`, with the receiving end of that number.

    A requestor that forgets a link, because it took the processor for dead, begins with a new end. So a word that comes
    late is told from a word of somebody who has forgotten.
    """

    end: int
    seq: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """Requestor -> processor: I live, I have so much of these links, and I left these."""

    inbox: str
    acknowledged: dict[str, Have]
    cancelled: tuple[StreamKey, ...] = ()


class Resend(msgspec.Struct, frozen=True, tag="resend"):
    """Requestor -> processor: send this link's messages again, those after what I have."""

    inbox: str
    link: str
    have: Have


class Wanted(msgspec.Struct, frozen=True, tag="wanted"):
    """Requestor -> processor: yes, begin."""

    key: StreamKey


Control = Cancel | Beat | Resend | Wanted
CONTROL = cast("type[Control]", Control)
"""The union as `decode` takes it."""


class LinkState(msgspec.Struct, frozen=True, array_like=True):
    """How far a processor has sent on one link (-1 = nothing yet), and how many requests it works on for that inbox."""

    link: str
    sent: int
    running: int = 0


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
    """

    processor: str
    queues: tuple[str, ...]
    capacity: int
    in_flight: int
    models: tuple[str, ...] = ()
    links: dict[str, LinkState] = {}
    leaving: bool = False
    features: tuple[str, ...] = ()
    seconds: float = 0.0
