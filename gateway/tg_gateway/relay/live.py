"""Streams, presence and counts of a gateway -> one document a second for all who look, and what has changed in it."""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import count, islice
from typing import Any, Final, NamedTuple
from zlib import crc32

from typing_extensions import override

from tg_base.client import Requestor
from tg_base.protocol import Presence, Route
from tg_base.telemetry import make_printable
from tg_gateway.dialects import Catalogue, LiveFigures, server_sent_event
from tg_gateway.relay.live_rates import MARK_SECONDS, NO_RATES, LiveRates, Rates
from tg_gateway.relay.relay import Exchange, Relay
from tg_schema import encode
from tg_schema.errors import Cancelled, NotFound, RateLimited
from tg_schema.live import LIVE_TABLES, LiveDocument, LivePool, LiveProcessor, LiveQueue, LiveStream
from tg_schema.prompt_size import TOKEN_BYTES

VIEW_SECONDS: Final = 1.0
"""For so long a document is shown to all who look."""
MAX_ROWS: Final = 200
"""Rows of a table; of the streams the oldest."""
MAX_NAME_CHARACTERS: Final = 64
"""Characters of a name that are shown."""
MAX_FOLLOWERS: Final = 64
"""Event streams at a time for all who see everything."""
MAX_FOLLOWERS_OF_KEY: Final = 8
"""Event streams at a time for a key that sees its own streams alone; it takes none of the operators' places."""
MAX_FOLLOW_SECONDS: Final = 600.0
"""After these an event stream ends; its reader asks again, and its key is checked again."""


class _View(NamedTuple):
    """A document of one moment.

    Attributes:
        document: what it shows.
        number: greater than that of the view before.
        due: when the next one may be made.
        whole: its JSON.
        follows: the number of the view before; 0 = there is none.
        change: the event that leads from there to here.
    """

    document: LiveDocument
    number: int
    due: float
    whole: bytes
    follows: int
    change: bytes


class Live(LiveFigures):
    """What this gateway does now.

    Args:
        requestor: knows the processors.
        relay: knows the streams.
        catalogue: the services.
        find_pools: the pools of this process, by name.

    Attributes:
        catalogue: as given; an edit of the file replaces it.
    """

    def __init__(
        self,
        requestor: Requestor,
        relay: Relay,
        catalogue: Catalogue,
        find_pools: Callable[[], Iterable[tuple[str, LivePool]]],
    ) -> None:
        self.catalogue = catalogue
        self._requestor, self._relay, self._find_pools = requestor, relay, find_pools
        self._rates = LiveRates(relay.places)
        self._name, self._version = f"{socket.gethostname()}:{os.getpid()}", version("tokengrid-gateway")
        self._views: dict[str | None, _View] = {}
        self._numbers, self._followers = count(1), Counter[str | None]()

    async def mark(self) -> None:
        """Remember the counts of each moment, from which rates are made; until it is cancelled."""
        while True:
            await asyncio.sleep(MARK_SECONDS)
            self._rates.mark()

    @override
    def show(self, sees: str | None) -> bytes:
        return self._view(sees).whole

    @override
    async def follow(self, sees: str | None) -> AsyncGenerator[bytes, None]:
        if self._followers[sees] >= (MAX_FOLLOWERS if sees is None else MAX_FOLLOWERS_OF_KEY):
            raise RateLimited("too many look at this gateway; ask again later", retry_after=VIEW_SECONDS)
        self._followers[sees] += 1
        try:
            seen, end = 0, time.monotonic() + MAX_FOLLOW_SECONDS
            while not self._relay.draining and time.monotonic() < end:
                view = self._view(sees)
                if view.number != seen:
                    yield view.change if seen and view.follows == seen else server_sent_event(view.whole)
                seen = view.number
                await asyncio.sleep(max(view.due - time.monotonic(), 0.0))
        finally:
            self._followers -= Counter([sees])

    @override
    def stop(self, stream: str, sees: str | None) -> None:
        for exchange in self._list_exchanges(sees):
            if exchange.entry.stream == stream:
                exchange.fail(Cancelled("an operator has stopped this stream"))
                # The exchange leaves only when its client has read what came before.
                self._requestor.stop(stream)
                exchange.stopped = True
                return
        raise NotFound("no such stream runs here: it has ended, or it is another gateway's or another key's")

    def _view(self, sees: str | None) -> _View:
        now, before = time.monotonic(), self._views.get(sees)
        if before is not None and now < before.due:
            return before
        # Forget what nobody looks at any more: there may be thousands of keys.
        self._views = {key: view for key, view in self._views.items() if now < view.due + VIEW_SECONDS}
        document = self._make(sees)
        change = b"" if before is None else server_sent_event(encode(document.since(before.document)))
        follows = 0 if before is None else before.number
        view = _View(document, next(self._numbers), now + VIEW_SECONDS, encode(document), follows, change)
        self._views[sees] = view
        return view

    def _make(self, sees: str | None) -> LiveDocument:
        exchanges = self._list_exchanges(sees)
        listed = islice(exchanges, MAX_ROWS)
        rows: dict[str, LiveStream | None] = {str(each.entry.stream): self._describe_stream(each) for each in listed}
        at, window = round(time.monotonic() - self._rates.began, 1), round(self._rates.window, 1)
        facts = (True, "" if sees else self._name, self._version, at, window, self._relay.draining)
        if sees is not None:
            return LiveDocument(*facts, {"streams": len(rows) + sum(1 for _ in exchanges)}, streams=rows)
        routes, processors = self.catalogue.all_routes, list(self._requestor.presence)
        pools, rates = list(self._find_pools()), self._rates.measure()
        streams = sum(not each.stopped for each in self._relay.running)
        names = {each.request: f"{each.flow}/{each.spec.name}" for each in routes}
        return LiveDocument(
            *facts,
            dict(zip(LIVE_TABLES, (*map(len, (routes, processors, pools)), streams), strict=True)),
            {_name_row(names[each.request]): self._describe_queue(each, rates) for each in routes[:MAX_ROWS]},
            {_name_row(each.processor): _describe_processor(each, names) for each in processors[:MAX_ROWS]},
            {_name_row(name): pool for name, pool in pools[:MAX_ROWS]},
            rows,
        )

    def _list_exchanges(self, sees: str | None) -> Iterator[Exchange]:
        """The streams that were asked and not stopped, the oldest first."""
        seen = (each for each in self._relay.running if sees is None or sees == each.entry.key)
        return (each for each in seen if each.entry.stream and not each.stopped)

    def _describe_stream(self, exchange: Exchange) -> LiveStream:
        entry, (flow, service) = exchange.entry, exchange.metrics.name
        return LiveStream(
            _cut(flow),
            service,
            _cut(exchange.responses.model or exchange.metrics.model),
            _cut(entry.key or ""),
            entry.door,
            round(entry.started - self._rates.began, 1),
            -(-exchange.letters // TOKEN_BYTES),
            entry.records > 0,
        )

    def _describe_queue(self, route: Route[Any, Any], rates: dict[tuple[str, str], Rates]) -> LiveQueue:
        admission, queue = self._requestor.admission, route.request
        announced, serving = admission.find(queue), self._requestor.presence.serving(queue)
        return LiveQueue(
            _cut(route.flow),
            route.spec.name,
            _cut(", ".join(announced.models) or route.model or ""),
            len(serving),
            sum(each.in_flight for each in serving),
            announced.capacity if serving else 0,
            admission.count_waiting(queue),
            *rates.get((route.flow, route.spec.name), NO_RATES),
            announced.failing,
        )


def _describe_processor(presence: Presence, names: Mapping[str, str]) -> LiveProcessor:
    state = "leaving" if presence.leaving else "loading" if presence.loading else presence.failing or "ready"
    queues = ", ".join(names.get(each) or each.rpartition("/")[2] for each in presence.queues[:MAX_ROWS])
    return LiveProcessor(
        _cut(queues), _cut(", ".join(presence.models)), presence.in_flight, presence.capacity, _cut(state)
    )


def _cut(name: str) -> str:
    """A name that others chose, short and printable."""
    return make_printable(name if len(name) <= MAX_NAME_CHARACTERS else f"{name[: MAX_NAME_CHARACTERS - 1]}\u2026")


def _name_row(name: str) -> str:
    """The same, for a row of its own: if it is cut, its end tells it from others."""
    cut = _cut(name)
    return cut if cut == name else f"{cut[: MAX_NAME_CHARACTERS - 9]}\u2026{crc32(name.encode(errors='replace')):08x}"
