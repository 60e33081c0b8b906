"""TextCompletionRequest -> the server that the scheduler picks, or another one if that fails -> LlmChunks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import islice
from random import Random
from time import perf_counter
from typing import Self, cast

import msgspec
import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.llm import HttpAnswer, KeyedConnection, LlmChunk, PassOn, SdkConnection, name_server
from tg_base.telemetry import LOAD_RESPONSE_HEADER, Spanning, span_names, trace
from tg_flow.providers.openai import ChatCompletions
from tg_picker.core import Endpoint, Pick, Rejection, Scheduler
from tg_picker.picking import PoolPicker
from tg_picker.pools import Destination, PoolSources, PoolView, Prompt, PromptFields, read_prompt
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_picker.provider.attempt import Attempt, say_model
from tg_picker.provider.connection import PoolConnection
from tg_picker.provider.failures import choose_failure, describe_missing, refuse
from tg_picker.provider.hedging import Hedging, begin_either, hedged
from tg_picker.provider.options import PoolOptions
from tg_picker.provider.order import Order, describe, explain_order, find_destination, name_model, settle
from tg_picker.status import RequestFacts, RequestRecord, find_pools
from tg_schema import ModelInfo, TextCompletionRequest, TgError
from tg_schema.errors import NotFound
from tg_schema.features import Feature
from tg_schema.live import LivePool
from tg_schema.topics import Topics

log = structlog.get_logger()
_PROMPT = msgspec.json.Decoder(PromptFields)

LACKED_SECONDS = 60.0
"""How long the pool's model is not announced after no server had it; the same for an adapter at a server."""
MAX_ANNOUNCED = 1_000
"""Most adapters of routes that are announced, as many as for a local model; others need the model's name too."""


class Pool(ChatCompletions[PoolOptions]):
    """One model and its adapters over many servers with OpenAI's API.

    A request that fails before any output was sent goes to another server, and never to the same one twice.
    """

    features: frozenset[Feature] = ChatCompletions.features | {"adapter"}
    optional_features = frozenset()

    def __init__(
        self,
        model: str,
        options: PoolOptions,
        connection: KeyedConnection[PoolConnection],
        watcher: PoolWatcher | None = None,
    ) -> None:
        # The connection gets only answer requests, which `_ask` sends. No other operation reaches it.
        super().__init__(model, options, cast("KeyedConnection[SdkConnection]", connection))
        # A worker process only encodes requests: it has no event loop, and follows no pools.
        self._now = _stand_still if watcher is None else asyncio.get_running_loop().time
        self._random = Random()  # noqa: S311 - it chooses between weights and ties
        scheduler = Scheduler(options.policy, options.admission, random=self._random)
        # The load page is at the same address, so it is served over TLS if the API is.
        scrape = msgspec.structs.replace(options.scrape, tls=options.https or options.scrape.tls)
        watched = watcher or PoolWatcher(PoolSources())
        pools = FollowedPools(watched, scheduler, scrape if options.scraped else None, options.kv_events)
        self._picker = PoolPicker(
            model,
            options.policy,
            scheduler,
            pools,
            limits=options.waiting,
            clock=self._now,
            adapter_source=options.adapter_source,
        )
        self._hedging = Hedging(options.hedge)
        self._exit = AsyncExitStack()
        self._lacks_model_until = 0.0
        # Bind once: then a line that the log level suppresses costs next to nothing.
        self._log = log.bind()

    @classmethod
    @override
    async def open(cls, model: str, options: PoolOptions) -> Self:
        options.endpoint(model)
        watcher = await asyncio.to_thread(PoolWatcher, options.sources(model))
        scheme = "https" if options.https else "http"
        connection = await KeyedConnection[PoolConnection].open(
            options.key(), lambda key: PoolConnection(scheme, options.api_path, key)
        )
        pool = cls(model, options, connection, watcher)
        await pool._enter()
        return pool

    async def share(self, bus: Bus, topics: Topics) -> None:
        """See `SharedProvider`."""
        await self._picker.share(bus, topics)

    @property
    def view(self) -> PoolView:
        """The current pools."""
        return self._picker.pools.view

    @property
    @override
    def adapters(self) -> Mapping[str, str]:
        catalogue = self.view.catalogue
        loaded = frozenset(catalogue.adapters)
        found = (name for name in catalogue.models if name not in {self.model, self.upstream_model})
        names = islice(found, MAX_ANNOUNCED)
        return {name: self._picker.loader.find_source(name) if name in loaded else name for name in names}

    @property
    @override
    def pools(self) -> Mapping[str, LivePool]:
        return {pool.name: pool.figures for pool in find_pools((self._picker.board,))}

    @property
    @override
    def adapters_only(self) -> bool:
        try:
            self._find_destination(None)
        except NotFound:
            return True
        return self._now() < self._lacks_model_until

    async def _enter(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(super().aclose)
            await stack.enter_async_context(self._picker)
            self._exit = stack.pop_all()

    @override
    async def aclose(self) -> None:
        await self._exit.aclose()

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        view = self.view
        served = (model for models in view.served.values() for model in sorted(models))
        return tuple(ModelInfo(name) for name in dict.fromkeys((self.model, *view.catalogue.models, *served)))

    def _make_order(self, request: TextCompletionRequest) -> Order:
        asked = request.adapter or self.upstream_model
        try:
            to = self._find_destination(request.adapter)
        except NotFound:
            self._picker.board.refuse(RequestFacts(trace.find_request(), asked), Rejection("model-not-found", 404))
            raise
        written, prompt = self._write(
            request if request.adapter is None else msgspec.structs.replace(request, adapter=None)
        )
        body = name_model(written, self.upstream_model, to.model)
        return Order(request, asked, to, describe(request, self.view, to, prompt), body, self._now())

    def _find_destination(self, adapter: str | None) -> Destination:
        return find_destination(self.view, self.upstream_model, adapter, self._random, self._picker.scheduler)

    def _write(self, request: TextCompletionRequest) -> tuple[bytes, Prompt]:
        """The body for the servers, and the prompt in it."""
        salt = (self.options.salt_field and trace.find_caller()) or ""
        body = self._sent(request)
        prompt = read_prompt(_PROMPT.decode(body))
        return body, msgspec.structs.replace(prompt, salt=salt) if salt else prompt

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, PassOn | None]:
        """The answer of the first server that begins one. If a server is slow to begin, a second one is tried too."""
        order = self._make_order(request)
        failed: TgError | None = None
        try:
            while True:
                pick = await self._pick(order, failed)
                record = order.records[-1]
                delay = self._find_delay(order) if failed is None else None
                async with (
                    aclosing(self._attempt(pick, order, record)) as first,
                    hedged(delay, lambda: self._start_second(order)) as second,
                ):
                    try:
                        held, rest = await begin_either(first, second)
                    except TgError as error:
                        failed = choose_failure(failed, error, pick, model=self.model, provider=self.provider)
                        taken = None if second is None else await second.take_over()
                        if taken is None:
                            continue
                        held, rest = taken
                    now = self._now()
                    self._hedging.learn(order.route, now - pick.placement.picked_at)
                    if second is not None:
                        settle(order, record, won=rest is first, now=now)
                        name_server(order.last.server)
                    for chunk in say_model(held, order.destination.model):
                        yield chunk
                    on_chunk: PassOn | None = None
                    with suppress(StopAsyncIteration):
                        while True:
                            on_chunk = yield await rest.asend(on_chunk)
                    return
        finally:
            if self.options.explain and order.records:
                explain_order(order)

    async def _pick(self, order: Order, failed: TgError | None) -> Pick:
        """The server for the next attempt; the request may have to wait for one.

        Raises:
            TgError: there is no server; `failed`, if an attempt failed before.
        """
        if failed is not None:
            if not self._find_left(order):
                order.begin_second_round()
            if order.is_spent or not self._find_left(order):
                if isinstance(failed, NotFound) and order.request.adapter is None:
                    self._lacks_model_until = self._now() + LACKED_SECONDS
                raise describe_missing(failed, order)
        made, record = await self._picker.place(
            order.wanted,
            order.destination.pool,
            lambda: self._find_left(order),
            lambda: order.facts,
            arrived_at=order.arrived_at,
            size=len(order.body),
            again=bool(order.records),
        )
        order.records.append(record)
        if isinstance(made, Rejection):
            raise describe_missing(failed, order) if failed else refuse(made)
        order.note_asked(made.endpoint)
        return made

    def _find_delay(self, order: Order) -> float | None:
        """Seconds after which a second server is tried; None = never.

        A model server only generates text, so a second attempt changes nothing but the cost. Requests for several
        answers, and sheddable requests, get no second attempt.
        """
        is_single = order.request.answers == 1 and order.wanted.priority >= 0
        if not is_single or len(order.left) < 2 or order.is_spent:
            return None
        return order.destination.failure.hedging_delay or self._hedging.find_delay(order.route)

    def _start_second(self, order: Order) -> AsyncGenerator[LlmChunk, PassOn | None] | None:
        left = self._find_left(order)
        # If the route itself sets a hedging delay, its operator has accepted the cost.
        if not left or not (order.destination.failure.hedging_delay or self._hedging.spend()):
            return None
        began = perf_counter()
        pick = self._picker.dispatcher.pick_at_once(order.destination.pool, order.wanted, left, self._now())
        if pick is None:
            return None
        seconds = perf_counter() - began
        order.records.append(self._picker.board.record(order.facts, order.wanted, pick, seconds, again=True))
        order.note_asked(pick.endpoint)
        log.debug("pool.hedged", server=pick.endpoint.name)
        return self._attempt(pick, order, order.records[-1])

    async def _attempt(
        self, pick: Pick, order: Order, record: RequestRecord
    ) -> AsyncGenerator[LlmChunk, PassOn | None]:
        """The answer of one server. However it ends, its placement is released."""
        self._log.debug("pool.picked", server=pick.endpoint.name, reasons=pick.reasons)
        chunks = self.stream_answer(order.request, lambda connection: self._ask(connection, order, pick))
        attempt = Attempt(pick.placement, record, self._now)
        server = Spanning(f"attempt {pick.endpoint.name}", "client", {span_names.SERVER: pick.endpoint.address})
        try:
            with server:
                async with aclosing(chunks):
                    with suppress(StopAsyncIteration):
                        while True:
                            chunk = await chunks.asend(None if attempt.on_chunk is None else attempt.pass_on)
                            attempt.see(chunk)
                            attempt.on_chunk = yield chunk
            attempt.complete()
        except TgError as error:
            now = attempt.fail(error)
            if isinstance(error, NotFound) and order.destination.adapter is not None:
                self._picker.scheduler.forget_adapter(pick.endpoint, order.destination.adapter, now)
                order.note_lost(pick.endpoint.address)
            raise
        finally:
            attempt.end()

    async def _ask(self, connection: PoolConnection, order: Order, pick: Pick) -> HttpAnswer:
        """Send the request. The answer's header may report the server's load."""
        if order.destination.adapter is not None and order.destination.route:
            await self._picker.loader.load(pick.endpoint, order.destination.adapter, connection.load)
            if self._picker.loader.has(pick.endpoint, order.destination.adapter):
                order.loaded.add(pick.endpoint.address)
        answer = await connection.ask(pick.endpoint.address, order.body)
        header = answer.headers.get(LOAD_RESPONSE_HEADER)
        if header:
            self._picker.pools.read_load(pick.endpoint, header, self._now())
        return answer

    def _find_left(self, order: Order) -> Sequence[Endpoint]:
        """The servers of the pool that were not tried yet, without unreachable ones."""
        members = self.view.members.get(order.destination.pool, ())
        # This is usually the pool's own tuple, for which the scheduler has cached its result.
        order.left = eligible = self._picker.pools.find_eligible(members)
        if order.tried:
            order.left = [endpoint for endpoint in eligible if endpoint.address not in order.tried]
        order.unreachable = len(members) - len(eligible)
        return order.left


def _stand_still() -> float:
    return 0.0
