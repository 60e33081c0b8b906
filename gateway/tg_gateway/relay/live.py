"""Streams, presence and counts of all gateways -> one document per second, shared by all viewers, and its changes."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import reduce
from itertools import chain, count, islice
from typing import Any, Final, NamedTuple

from typing_extensions import override

from tg_base.client import Requestor
from tg_base.protocol import Presence, Route
from tg_base.runtime import counted
from tg_gateway.dialects import Catalogue, LiveFigures, server_sent_event
from tg_gateway.relay.live_part import VERSION, LivePart, Part
from tg_gateway.relay.live_rates import Rates, find_quantile
from tg_gateway.relay.live_rows import MAX_NAME_CHARACTERS, MAX_ROWS, cut_name, describe_processor, name_row
from tg_gateway.relay.other_gateways import OtherGateways
from tg_gateway.relay.relay import Relay
from tg_schema import encode
from tg_schema.errors import NotFound, RateLimited
from tg_schema.live import LIVE_TABLES, LiveDocument, LivePool, LiveQueue, LiveStream

VIEW_SECONDS: Final = 1.0
"""Seconds for which all viewers get the same document."""
MAX_FOLLOWERS: Final = 64
"""Most event streams at a time for viewers who see everything."""
MAX_FOLLOWERS_OF_KEY: Final = 8
"""Event streams at a time for a key that sees its own streams alone; it takes none of the operators' places."""
MAX_FOLLOW_SECONDS: Final = 600.0
"""Seconds after which an event stream ends; its reader asks again, and its key is checked again."""


class _View(NamedTuple):
    """A document of one moment.

    Attributes:
        document: the document that it shows.
        number: greater than the number of the view before.
        due: when the next one may be made.
        whole: its JSON.
        follows: the number of the previous view; 0 = there is none.
        change: the event that leads from there to here.
    """

    document: LiveDocument
    number: int
    due: float
    whole: bytes
    follows: int
    change: bytes


class Live(LiveFigures):
    """What this gateway and the others on its bus do now.

    Args:
        requestor: knows the processors, and reaches the other gateways.
        relay: knows the streams.
        catalogue: the services.
        keyed: whether this gateway checks keys now.

    Attributes:
        part: describes what this gateway does.
    """

    def __init__(self, requestor: Requestor, relay: Relay, catalogue: Catalogue, keyed: Callable[[], bool]) -> None:
        self._requestor, self._relay = requestor, relay
        self.part = LivePart(requestor, relay, catalogue)
        self._others = OtherGateways(requestor, self.part, keyed)
        self._views: dict[str | None, _View] = {}
        self._numbers, self._followers = count(1), Counter[str | None]()

    @override
    async def show(self, sees: str | None) -> bytes:
        return (await self._view(sees)).whole

    @override
    async def follow(self, sees: str | None) -> AsyncGenerator[bytes, None]:
        if self._followers[sees] >= (MAX_FOLLOWERS if sees is None else MAX_FOLLOWERS_OF_KEY):
            raise RateLimited("too many look at this gateway; ask again later", retry_after=VIEW_SECONDS)
        with counted(self._followers, sees):
            seen, end = 0, time.monotonic() + MAX_FOLLOW_SECONDS
            while not self._relay.draining and time.monotonic() < end:
                view = await self._view(sees)
                if view.number != seen:
                    yield view.change if seen and view.follows == seen else server_sent_event(view.whole)
                seen = view.number
                await asyncio.sleep(max(view.due - time.monotonic(), 0.0))

    @override
    async def stop(self, stream: str, sees: str | None) -> None:
        if not (self.part.stop(stream, sees) or await self._others.stop(stream[:MAX_NAME_CHARACTERS], sees)):
            raise NotFound("no such stream runs: it has ended, it is another key's, or its gateway does not answer")

    async def _view(self, sees: str | None) -> _View:
        if (view := self._views.get(sees)) is not None and time.monotonic() < view.due:
            return view
        parts = await self._others.look(sees)
        now, before = time.monotonic(), self._views.get(sees)
        # Another viewer may have made the document meanwhile.
        if before is not None and now < before.due:
            return before
        # Forget views that nobody requests any more: there may be thousands of keys.
        self._views = {key: view for key, view in self._views.items() if now < view.due + VIEW_SECONDS}
        document = self._make(sees, [self.part.show(sees), *parts])
        change = b"" if before is None else server_sent_event(encode(document.since(before.document)))
        follows = 0 if before is None else before.number
        view = _View(document, next(self._numbers), now + VIEW_SECONDS, encode(document), follows, change)
        self._views[sees] = view
        return view

    def _make(self, sees: str | None, parts: Sequence[Part]) -> LiveDocument:
        """The document of these gateways, of which this gateway is the first."""
        oldest = sorted(chain(*(each.streams.items() for each in parts)), key=lambda each: each[1].since)[:MAX_ROWS]
        rows: dict[str, LiveStream | None] = dict(oldest)
        streams, this = sum(each.gateway.streams for each in parts), parts[0]
        facts = (True, "" if sees else self.part.name, VERSION, this.at, self.part.window, this.gateway.draining)
        if sees is not None:
            return LiveDocument(*facts, {"streams": streams}, streams=rows)
        routes, processors = self.part.catalogue.all_routes, list(self._requestor.presence)
        pools, nothing = _add_pools(processors), Rates()
        names = {each.request: f"{each.flow}/{each.spec.name}" for each in routes}
        listed = {name_row(names[each.request]): each for each in routes[:MAX_ROWS]}
        return LiveDocument(
            *facts,
            dict(zip(LIVE_TABLES, (*map(len, (parts, routes, processors, pools)), streams), strict=True)),
            {each.id: each.gateway for each in parts},
            {
                name: self._describe_queue(each, reduce(Rates.plus, (part.queues.get(name, nothing) for part in parts)))
                for name, each in listed.items()
            },
            {name_row(each.processor): describe_processor(each, names) for each in processors[:MAX_ROWS]},
            {name_row(name): pool for name, pool in islice(pools.items(), MAX_ROWS)},
            rows,
        )

    def _describe_queue(self, route: Route[Any, Any], rates: Rates) -> LiveQueue:
        queue = route.request
        announced, serving = self._requestor.admission.find(queue), self._requestor.presence.serving(queue)
        return LiveQueue(
            cut_name(route.flow),
            route.spec.name,
            cut_name(", ".join(announced.models) or route.model or ""),
            len(serving),
            sum(each.in_flight for each in serving),
            announced.capacity if serving else 0,
            rates.waiting,
            rates.tokens,
            find_quantile(rates.firsts, 0.5),
            find_quantile(rates.firsts, 0.99),
            rates.errors,
            announced.failing,
        )


def _add_pools(processors: Iterable[Presence]) -> dict[str, LivePool]:
    """The pools by name, as all processors see them that pick from them."""
    pools: dict[str, LivePool] = {}
    for name, pool in chain.from_iterable(each.pools.items() for each in processors):
        pools[name] = pool.beside(pools[name]) if name in pools else pool
    return pools
