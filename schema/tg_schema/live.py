"""Gateway -> operator: what one gateway process does now, and what has changed in that."""

from typing import Self

import msgspec


class LiveQueue(msgspec.Struct, frozen=True):
    """A service of a flow. What a gateway asks for, waits for and counts is its own; processors work for all gateways.

    Attributes:
        flow, service: whose queue it is.
        model: what its processors announce, else what is configured; "" = none is known.
        processors: how many take requests from it.
        running: requests that they run.
        capacity: requests that they can run.
        waiting: requests of this gateway that none of them has room for, as admission control counts them.
        tokens: tokens of answers per second in the last `LiveDocument.window`, estimated from their text.
        first_p50, first_p99: seconds until the first token, half and 99 of 100 of the answers at most; None = there
            was none.
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
        queues: those that it reads, as `LiveDocument.queues` names them.
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
    """A pool of model servers that a processor of this process picks from.

    Attributes:
        servers: all of them.
        ready: those that can be reached.
        running: requests that were placed and have not ended.
        waiting: requests that wait at the servers, as these tell.
    """

    servers: int
    ready: int
    running: int
    waiting: int


class LiveStream(msgspec.Struct, frozen=True):
    """A request of this gateway that runs or waits.

    Attributes:
        flow, service: what was asked.
        model: by its name in the configuration; "" = it is not known.
        key: the name of the API key that asked; "anybody" = none is needed.
        door: as in the log.
        since: when it came, as `LiveDocument.at`.
        tokens: of the answer so far, estimated from its text.
        begun: whether something of the answer has come.
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
    """All of it, or what has changed: then rows that are unchanged are left out, and those that are gone are null.

    So a change is a JSON merge patch (RFC 7396) of the document before. A key without an administrator's rights sees
    its own streams, and nothing that others do.

    Attributes:
        whole: whether it is all of it.
        gateway: the host and the number of the process; "" = one may not know.
        version: of the gateway.
        at: seconds since this gateway began.
        window: seconds for which rates, quantiles and errors are counted.
        draining: whether it takes no more requests.
        totals: how many there are of each kind. Some hundred are listed, of the streams the oldest.
        queues, processors, pools, streams: the rows by name or id.
    """

    whole: bool
    gateway: str
    version: str
    at: float
    window: float
    draining: bool
    totals: dict[str, int]
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


LIVE_TABLES = ("queues", "processors", "pools", "streams")
"""The fields that have rows."""


class StoppedStream(msgspec.Struct, frozen=True):
    """The answer to a request to stop a stream: its id."""

    stopped: str


def _merge(rows: dict[str, object], change: dict[str, object]) -> dict[str, object]:
    return {name: row for name, row in (rows | change).items() if row is not None}


def _subtract(rows: dict[str, object], before: dict[str, object]) -> dict[str, object]:
    changed = {name: row for name, row in rows.items() if before.get(name) != row}
    return changed | dict.fromkeys(before.keys() - rows.keys())
