"""Requestor <-> processor: all messages except requests. A plain peer needs none of them."""

from typing import Annotated, Final, Literal, cast

import msgspec

from tg_schema.live import LivePool

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A count, or a sequence number."""
Last = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
"""The number of the last message; -1 = there is none."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]

FrameKind = Literal["record", "end", "accepted", "confirm", "returned", "fetch"]
_NOTHING = msgspec.Raw(b"null")

ACCEPTED_AFTER_SECONDS = 0.1
"""Seconds of work without a record after which the processor says "accepted"."""
OPENING_MODEL = 1
"""Number in an "accepted" frame: the processor has the request, and has to open its model first."""
IDLE_LINK_SECONDS = 30.0
"""Seconds after which a processor closes an unused link. Its requestor drops the other end later, never before."""
KIND_PROPERTY = "kind"
"""The type of a message on an inbox that belongs to no link: "report" = a `LinkReport`, "presence" = a `Presence`."""
PEER_PROPERTY: Final = "peer"
"""Marks a message from one requestor to others, on presence or on an inbox: the inbox of its sender."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One stream's part of a link message.

    Attributes:
        kind: the type of the frame. "record" = a response record that is not the last. "end" = the last response
            record. "accepted" = the processor works on the request. "confirm" = it holds a request that may be a
            redelivery, and asks for a `Confirmed`. "returned" = it has not begun the request; another processor should
            take it. "fetch" = it wants the body of a large request, from an offset on (`Part`).
        stream: the stream's id.
        attempt: which attempt at the stream this answers.
        record: for "record" and "end", the response record, a JSON object.
        question: for "confirm", the number that the `Confirmed` must repeat; for "fetch", the offset; for "accepted",
            `OPENING_MODEL` while the model is being opened, which requestors of an older version ignore.
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

    @property
    def opening(self) -> bool:
        """Whether "accepted" says that the model is being opened."""
        return self.question == OPENING_MODEL


class StreamKey(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one stream."""

    stream: str
    attempt: Count


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Requestor -> processor: stop these attempts; drop those that are taken from the queue within `ttl` seconds."""

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
    """Requestor -> processor, once a second while they have a link: its acknowledgement.

    Attributes:
        inbox: the requestor.
        acks: by link.
        cancelled: the streams that were cancelled lately.
        reports: whether its inbox takes a `LinkReport`, and a `Presence` for each process; always true.
        oldest: the lowest link number that answers one of its streams; -1 = there is none, or it is not stated.
        spacing: the least seconds between two messages of a link under load, given all links to this inbox.
    """

    inbox: str
    acks: dict[str, Ack]
    cancelled: tuple[StreamKey, ...] = ()
    reports: bool = True
    oldest: Last = -1
    spacing: Seconds = 0.0


class Nack(msgspec.Struct, frozen=True, tag="nack"):
    """Requestor -> processor: send the messages of this link after `ack` again."""

    inbox: str
    link: str
    ack: Ack


class Announce(msgspec.Struct, frozen=True, tag="announce"):
    """Requestor -> all processors: announce your presence now, not with the next heartbeat.

    Attributes:
        inbox: the only inbox to announce to; empty = announce to every requestor.
        birth: a second random id of the process that asks, besides its inbox's; empty = its version is older.
    """

    inbox: str = ""
    birth: str = ""


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """Requestor -> processor: begin. Answers only the "confirm" frame of that number, and only for a limited time."""

    key: StreamKey
    question: Count


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """Requestor -> processor: a kept stream is ours now; the requestor that had it has died or left.

    The processor sends the records after the first `after`. If it does not have the stream, it says "returned".

    Attributes:
        key: the stream, and the attempt under which it is answered from now on: a greater one than before.
        inbox: the requestor.
        after: how many records it has.
    """

    key: StreamKey
    inbox: str
    after: Count


Control = Cancel | Heartbeat | Nack | Confirmed | Announce | Adopt
CONTROL = cast("type[Control]", Control)
"""The union type for `decode`."""


class LinkState(msgspec.Struct, frozen=True, array_like=True):
    """One link as its processor sees it.

    Attributes:
        link: its name, which ends in /NUMBER.
        sent: the number of the last message sent; -1 = none yet.
        running: requests in progress for that inbox.
        first: the link's number when it was opened. Streams of an earlier link to the same inbox are over.
    """

    link: str
    sent: Last
    running: Count = 0
    first: Count = 0


class LinkReport(msgspec.Struct, frozen=True):
    """Process -> one inbox: the state of its link there. The loss of a link's last message is detected by this.

    It is sent with each announcement while the link has streams or unacknowledged messages, once more afterwards, and
    in reply to a heartbeat whose `oldest` link is closed.

    Attributes:
        processor: the id of the process.
        number: the number of its announcement; its counts are of the same moment.
        over_below: the lowest valid link number. Links with a lower number are closed, and their streams over.
        link: the open link; None = there is none.
        running: requests of this inbox in progress, by the id of the processor as presence has it; without zeros.
    """

    processor: str
    number: Last
    over_below: Count
    link: LinkState | None = None
    running: dict[str, Count] = {}


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Process -> every requestor, once a second: the process's services, and how busy it is.

    A process's record has `services`, one record per processor, and its own `queues` is empty. It holds only changes; a
    requestor that has missed an earlier record asks the process for everything. A record without `number` describes a
    single processor.

    Attributes:
        processor: the id of the process, new at every start; within `services`, that of one of its processors.
        queues: the request topics that it reads.
        models: the models that it serves.
        capacity: requests that it runs concurrently.
        in_flight: requests that run now.
        leaving: whether it takes no more requests.
        features: the optional features of its service (`tg_schema.features`).
        seconds: recent average duration of a request; 0 = none has ended yet.
        taken: requests taken from its queues since it started; -1 = not stated.
        direct: requests taken from its process's control topic since it started; -1 = it takes none there.
        waited: the longest queue time, in seconds, of a request taken since the previous announcement.
        request_bytes: size of the largest request that it fetches in parts; 0 = it takes no such request.
        loading: whether a request waits until its model is loaded.
        adapters: the LoRA adapters that can be asked for, and where each is from.
        adapters_only: whether a request must name one of them, since nothing leads to the model alone.
        number: which announcement of its process this is; -1 = not the record of a process.
        base: the announcement that this one adds to: its reader needs that or a later one; -1 = the state is whole.
        services: the state of each processor of the process, if it has changed since `base`.
        gone: the ids of processors that have ended since `base`.
        birth: in a record to one inbox, the `birth` of the process that first asked for that inbox; empty = not stated.
        cooling: seconds for which its model should not be asked, since it has failed; 0 = it may be asked.
        failing: the type of the error that made the model cool down.
        provider: its model's provider, by its name in the configuration; empty = not known.
        pools: the pools of servers that it picks from, by name.
    """

    processor: str
    queues: tuple[str, ...]
    capacity: Count
    in_flight: Count
    models: tuple[str, ...] = ()
    leaving: bool = False
    features: tuple[str, ...] = ()
    seconds: Seconds = 0.0
    taken: Last = -1
    waited: Seconds = 0.0
    request_bytes: Count = 0
    loading: bool = False
    adapters: dict[str, str] = {}
    direct: Last = -1
    number: Last = -1
    base: Last = -1
    services: tuple["Presence", ...] = ()
    gone: tuple[str, ...] = ()
    birth: str = ""
    adapters_only: bool = False
    cooling: Seconds = 0.0
    failing: str = ""
    provider: str = ""
    pools: dict[str, LivePool] = {}
