"""Streams and counts of this process -> its part of the live view, and streams of it that are stopped."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from functools import reduce
from importlib.metadata import version
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from tg_base.client import Requestor
from tg_base.telemetry import new_id
from tg_gateway.dialects import Catalogue
from tg_gateway.relay.live_rates import MARK_SECONDS, LiveRates, Rates
from tg_gateway.relay.live_rows import MAX_ROWS, cut_name, name_row
from tg_gateway.relay.relay import Exchange, Relay
from tg_schema.errors import Cancelled
from tg_schema.live import LiveGateway, LiveStream
from tg_schema.prompt_size import TOKEN_BYTES

VERSION: Final = version("tokengrid-gateway")
_STOPPED: Final = attrgetter("stopped")


class Part(msgspec.Struct, frozen=True):
    """The current activity of one process with a requestor.

    Attributes:
        id: the id of the process.
        at: seconds since it began.
        gateway: its row.
        streams: its oldest streams.
        queues: figures of services by the names of their rows; none for those without any.
    """

    id: str
    at: float
    gateway: LiveGateway
    streams: dict[str, LiveStream]
    queues: dict[str, Rates] = {}


class LivePart:
    """What this process does.

    Args:
        requestor: knows what waits, and stops the work on a stream.
        relay: knows the streams.
        catalogue: the services.
        role: the role of the process, if it is no gateway.

    Attributes:
        catalogue: the current catalogue; an edit of the file replaces it.
        name: the host, the number of the process, and its role.
        began: when it began, on the clock of `time.monotonic`.
    """

    def __init__(self, requestor: Requestor, relay: Relay, catalogue: Catalogue, role: str = "") -> None:
        self.catalogue = catalogue
        self.name = cut_name(f"{socket.gethostname()}:{os.getpid()} {role}".strip())
        self._requestor, self._relay = requestor, relay
        self._rates, self._id = LiveRates(relay.places), new_id(6)
        self.began = self._rates.began

    @property
    def window(self) -> float:
        """Seconds for which rates, quantiles and errors are counted."""
        return round(self._rates.window, 1)

    async def mark(self) -> None:
        """Remember the counts of each moment, from which rates are made; until it is cancelled."""
        while True:
            await asyncio.sleep(MARK_SECONDS)
            self._rates.mark()

    def show(self, sees: str | None) -> Part:
        """What a viewer may see of this process, by `Call.sees`."""
        exchanges = self._list_exchanges(sees)
        rows = {str(each.entry.stream): self._describe_stream(each) for each in islice(exchanges, MAX_ROWS)}
        at, facts = round(time.monotonic() - self.began, 1), (self.name, VERSION, self._relay.draining)
        if sees is not None:
            return Part(self._id, at, LiveGateway(*facts, len(rows) + sum(1 for _ in exchanges)), rows)
        rates, waits = self._rates.measure(), self._requestor.admission.count_waiting
        queues = {
            name_row(f"{each.flow}/{each.spec.name}"): rates.get((each.flow, each.spec.name), Rates())._replace(
                waiting=waits(each.request)
            )
            for each in self.catalogue.all_routes[:MAX_ROWS]
        }
        total = reduce(Rates.plus, queues.values(), Rates())
        streams = len(self._relay.running) - sum(map(_STOPPED, self._relay.running))
        gateway = LiveGateway(*facts, streams, total.waiting, total.tokens, total.errors)
        return Part(self._id, at, gateway, rows, {name: each for name, each in queues.items() if any(each)})

    def stop(self, stream: str, sees: str | None) -> bool:
        """End a stream with the error `Cancelled`, and stop its model; False = this process has no such stream."""
        for exchange in self._list_exchanges(sees):
            if exchange.entry.stream == stream:
                exchange.fail(Cancelled("an operator has stopped this stream"))
                # The exchange leaves only when its client has read everything before it.
                self._requestor.stop(stream)
                exchange.stopped = True
                return True
        return False

    def _list_exchanges(self, sees: str | None) -> Iterator[Exchange]:
        """The streams that were asked and not stopped, the oldest first."""
        seen = (each for each in self._relay.running if sees is None or sees == each.entry.key)
        return (each for each in seen if each.entry.stream and not each.stopped)

    def _describe_stream(self, exchange: Exchange) -> LiveStream:
        entry, (flow, service) = exchange.entry, exchange.metrics.name
        return LiveStream(
            cut_name(flow),
            service,
            cut_name(exchange.responses.model or exchange.metrics.model),
            cut_name(entry.key or ""),
            entry.door,
            round(entry.started - self.began, 1),
            -(-exchange.letters // TOKEN_BYTES),
            entry.records > 0,
        )
