"""Gateways -> operator: what all gateway processes of a bus do now, and the changes in that."""

from typing import Self

import msgspec


class LiveGateway(msgspec.Struct, frozen=True):
    """A gateway process, or one that makes responses in the background in place of the gateways.

    Attributes:
        name: the host and the number of the process, and "jobs" if it is no gateway.
        version: the gateway's version.
        draining: whether it takes no more requests.
        streams: its requests that run or wait.
        waiting, tokens, errors: as in `LiveQueue`, but of this gateway alone, over all listed queues.
    """

    name: str
    version: str
    draining: bool
    streams: int
    waiting: int = 0
    tokens: float = 0.0
    errors: int = 0


class LiveQueue(msgspec.Struct, frozen=True):
    """A service of a flow, with what all gateways have asked for, wait for and count.

    Attributes:
        flow, service: the service whose queue it is.
        model: what its processors announce, or else the configured one; "" = none is known.
        processors: how many processors take requests from it.
        running: requests that these processors run.
        capacity: requests that these processors can run.
        waiting: requests for which none of them has capacity, as the admission control of each gateway counts its own.
        tokens: tokens of answers per second in the last `LiveDocument.window`, estimated from their text.
        first_p50, first_p99: within how many seconds half, and 99 of 100, of the answers had their first token; None =
            there was no answer.
        errors: requests that ended with an error in that time, those that were refused included.
        failing: the type of the error for which its model is not asked now; "" = it is asked.
    """

    flow: str
    service: str
    model: str
    processors: int
    running: int
    capacity: int
    waiting: int
    tokens: float
    first_p50: float | None
    first_p99: float | None
    errors: int
    failing: str


class LiveProcessor(msgspec.Struct, frozen=True):
    """A processor, as it announced itself within the last second or two.

    Attributes:
        queues: the queues that it reads, as `LiveDocument.queues` names them.
        model: its models.
        running: requests that it runs, for any gateway.
        capacity: requests that it can run.
        state: "ready", "loading", "leaving", or the type of the error for which its model cools down.
    """

    queues: str
    model: str
    running: int
    capacity: int
    state: str


class LivePool(msgspec.Struct, frozen=True):
    """A pool of model servers that processors pick from.

    Attributes:
        servers: how many servers the pool has.
        ready: how many servers can be reached.
        running: requests that were placed by these processors and have not ended.
        waiting: requests that wait at the servers, as the servers report.
    """

    servers: int
    ready: int
    running: int
    waiting: int

    def beside(self, other: Self) -> "LivePool":
        """The same pool as two processors know it: each has placed requests of its own."""
        known = (max(getattr(self, name), getattr(other, name)) for name in ("servers", "ready", "waiting"))
        servers, ready, waiting = known
        return LivePool(servers, ready, self.running + other.running, waiting)


class LiveStream(msgspec.Struct, frozen=True):
    """A request of a gateway that runs or waits.

    Attributes:
        flow, service: the service that the request is for.
        model: by its name in the configuration; "" = it is not known.
        key: the name of the API key that asked; "anybody" = none is needed.
        door: as in the log.
        since: when the request arrived, counted as `LiveDocument.at`.
        tokens: tokens of the answer so far, estimated from its text.
        begun: whether a part of the answer has arrived.
    """

    flow: str
    service: str
    model: str
    key: str
    door: str
    since: float
    tokens: int
    begun: bool


class LiveDocument(msgspec.Struct, frozen=True):
    """The whole view, or a change of it: a change leaves out unchanged rows, and has null for rows that are gone.

    So a change is a JSON merge patch (RFC 7396) of the document before. A key without an administrator's rights sees
    its own streams, and nothing of other keys. The activity of other gateways is shown about a second late. A gateway
    that does not answer is left out.

    Attributes:
        whole: whether it is the whole view.
        gateway: the host and the number of the process that was asked; "" = one may not know.
        version: this gateway's version.
        at: seconds since this gateway began.
        window: seconds for which rates, quantiles and errors are counted.
        draining: whether it takes no more requests.
        totals: how many rows of each kind there are. Only some hundred of a kind are listed; of the streams, the
            oldest.
        gateways, queues, processors, pools, streams: the rows by name or id.
    """

    whole: bool
    gateway: str
    version: str
    at: float
    window: float
    draining: bool
    totals: dict[str, int]
    gateways: dict[str, LiveGateway | None] = {}
    queues: dict[str, LiveQueue | None] = {}
    processors: dict[str, LiveProcessor | None] = {}
    pools: dict[str, LivePool | None] = {}
    streams: dict[str, LiveStream | None] = {}

    def apply(self, change: Self) -> Self:
        """The document after a change."""
        if change.whole:
            return change
        rows = {name: _merge(getattr(self, name), getattr(change, name)) for name in LIVE_TABLES}
        return msgspec.structs.replace(change, whole=True, **rows)

    def since(self, before: Self) -> Self:
        """What has changed since a document."""
        rows = {name: _subtract(getattr(self, name), getattr(before, name)) for name in LIVE_TABLES}
        return msgspec.structs.replace(self, whole=False, **rows)


LIVE_TABLES = ("gateways", "queues", "processors", "pools", "streams")
"""The fields that have rows."""


class StoppedStream(msgspec.Struct, frozen=True):
    """The answer to a request to stop a stream: its id."""

    stopped: str


class ListedStream(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream that is kept, as it began.

    Attributes:
        id: its id.
        begun: when it was requested, in Unix seconds.
        flow: the flow that was asked.
        service: its service.
        model: the requested model; None = the service has none.
        door: the name of the door at which it was requested; None = no door.
    """

    id: str
    begun: float
    flow: str
    service: str
    model: str | None = None
    door: str | None = None


class ListedStreams(msgspec.Struct, frozen=True):
    """The streams that are kept for a key, the oldest first."""

    streams: tuple[ListedStream, ...]


def _merge(rows: dict[str, object], change: dict[str, object]) -> dict[str, object]:
    return {name: row for name, row in (rows | change).items() if row is not None}


def _subtract(rows: dict[str, object], before: dict[str, object]) -> dict[str, object]:
    changed = {name: row for name, row in rows.items() if before.get(name) != row}
    return changed | dict.fromkeys(before.keys() - rows.keys())
