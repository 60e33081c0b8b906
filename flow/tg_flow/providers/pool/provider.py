"""TextCompletionRequest -> the server that the scheduler picks, another one if that fails -> LlmChunks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import islice, starmap
from random import Random
from time import perf_counter
from typing import Self, cast

import msgspec
import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.instances import Endpoint, InstanceRequest, Pick, Rejection, Scheduler, fingerprint_prompt
from tg_base.llm import HttpAnswer, KeyedConnection, LlmChunk, PassOn, SdkConnection
from tg_base.pool_status import BOARDS, LEFT, PoolBoard, QueueStatus, RequestFacts, RequestRecord, explain
from tg_base.pools import LOAD_RESPONSE_HEADER, Destination, Dispatcher, PoolView, PromptFields, find_goal, read_prompt
from tg_base.pools.adapter_loader import AdapterLoader
from tg_base.pools.followed_pools import FollowedPools
from tg_base.pools.placement_exchange import PlacementExchange
from tg_base.pools.pool_watcher import PoolWatcher
from tg_base.telemetry import trace
from tg_flow.providers.openai import ChatCompletions
from tg_flow.providers.pool.connection import PoolConnection
from tg_flow.providers.pool.hedging import Hedging, begin_either, hedged
from tg_flow.providers.pool.options import PoolOptions
from tg_flow.providers.pool.order import Order
from tg_flow.providers.pool.seen_chunks import SeenChunks
from tg_schema import ModelInfo, TextCompletionRequest, TgError
from tg_schema.errors import NotFound, ProtocolError, RateLimited, Unavailable
from tg_schema.features import Feature
from tg_schema.topics import Topics

log = structlog.get_logger()
_encode = msgspec.json.encode
_PROMPT = msgspec.json.Decoder(PromptFields)

SHEDDABLE_PRIORITY = -1
"""The highest of a request that says of itself that it may be refused."""

MAX_ANNOUNCED = 1_000
"""Adapters of routes that are announced, as many as a local model may have; the others need the model's name too."""

MAX_LOGGED = 100
"""Characters of a client's text in the log."""

_REFUSALS: dict[int, tuple[type[TgError], str]] = {
    404: (NotFound, "no server of the pool has the model"),
    429: (RateLimited, "all servers of the pool are busy; ask again later"),
    503: (Unavailable, "the pool has no server; its operator must check endpoints and their log"),
}


class Pool(ChatCompletions[PoolOptions]):
    """One model and its adapters over many servers with OpenAI's API.

    A request that fails before anything of its answer was shown goes to another server, never twice to the same.
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
        super().__init__(model, options, cast("KeyedConnection[SdkConnection]", connection))
        self._random = Random()  # noqa: S311 - it chooses between weights and ties
        self._scheduler = Scheduler(options.policy, options.admission, random=self._random)
        scrape = options.scrape if options.scraped else None
        self._pools = None if watcher is None else FollowedPools(watcher, self._scheduler, scrape)
        self._dispatcher = Dispatcher(self._scheduler, options.waiting, self._now)
        self._board = PoolBoard(
            model,
            options.policy,
            self._scheduler,
            self,
            self._now,
            totals=BOARDS.totals,
            queues=lambda: starmap(QueueStatus, self._dispatcher.queues),
            attainment=lambda: self._dispatcher.attainment.read(self._now()),
        )
        self._loader = AdapterLoader(options.adapter_source, self._scheduler)
        self._hedging = Hedging(options.hedge)
        self._exit = AsyncExitStack()
        # Bound once: a line that the level leaves out then costs next to nothing.
        self._log = log.bind()

    @classmethod
    @override
    async def open(cls, model: str, options: PoolOptions) -> Self:
        options.endpoint(model)
        watcher = await asyncio.to_thread(PoolWatcher, options.sources(model))
        scheme = "https" if options.https else "http"
        connection = await KeyedConnection[PoolConnection].open_in_thread(
            options.key(), lambda key: PoolConnection(scheme, options.api_path, key)
        )
        pool = cls(model, options, connection, watcher)
        await pool._enter()
        return pool

    async def share(self, bus: Bus, topics: Topics) -> None:
        """See `SharedProvider`."""
        if self._pools is not None:
            exchange = PlacementExchange(bus, topics.placements, self._scheduler, self._pools)
            await self._exit.enter_async_context(exchange)

    @property
    def view(self) -> PoolView:
        """The pools now; a worker process, which only writes requests, has none."""
        return PoolView() if self._pools is None else self._pools.view

    @property
    @override
    def adapters(self) -> Mapping[str, str]:
        found = (name for name in self.view.catalogue.adapters if name not in {self.model, self.upstream_model})
        return {name: self._loader.find_source(name) for name in islice(found, MAX_ANNOUNCED)}

    @property
    def failing(self) -> dict[str, str]:
        """The servers whose load cannot be read, by address, and why."""
        return {} if self._pools is None else self._pools.failing

    @property
    def unreachable(self) -> frozenset[str]:
        """The addresses that nobody can reach."""
        return frozenset() if self._pools is None else self._pools.unreachable

    async def _enter(self) -> None:
        async with AsyncExitStack() as exit_stack:
            exit_stack.push_async_callback(super().aclose)
            if self._pools is not None:
                await exit_stack.enter_async_context(self._pools)
                exit_stack.enter_context(BOARDS.show(self._board))
            self._exit = exit_stack.pop_all()

    @override
    async def aclose(self) -> None:
        await self._exit.aclose()

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        view = self.view
        served = (model for models in view.served.values() for model in sorted(models))
        return tuple(ModelInfo(name) for name in dict.fromkeys((self.model, *view.catalogue.models, *served)))

    def _make_order(self, request: TextCompletionRequest) -> Order:
        view, asked = self.view, request.adapter or self.upstream_model
        try:
            place = self._find_place(request, view)
        except NotFound:
            self._board.refuse(RequestFacts(trace.find_request(), asked), Rejection("model-not-found", 404))
            raise
        sent = self._sent(request if request.adapter is None else msgspec.structs.replace(request, adapter=None))
        body = _name_model(sent, self.upstream_model, place.model)
        return Order(request, asked, place, _describe(request, place, view, body), body, self._now())

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, PassOn | None]:
        order = self._make_order(request)
        failed: TgError | None = None
        try:
            while True:
                pick = await self._pick(order, failed)
                record = order.records[-1]
                delay = self._find_delay(order) if self.options.hedge and failed is None else None
                async with (
                    aclosing(self._attempt(pick, order, record)) as first,
                    hedged(delay, lambda: self._start_second(order)) as second,
                ):
                    try:
                        held, rest = await begin_either(first, second)
                    except TgError as error:
                        if not _goes_on(error, pick):
                            raise
                        # That another server lacks the model says less than why one that may have it failed.
                        failed = failed if failed and isinstance(error, NotFound) else error
                        taken = None if second is None else await second.take_over()
                        if taken is None:
                            continue
                        held, rest = taken
                    if self.options.hedge:
                        now = self._now()
                        self._hedging.learn(order.route, now - pick.placement.picked_at)
                        if second is not None:
                            _settle(order, record, won=rest is first, now=now)
                    for chunk in held:
                        yield chunk
                    on_chunk: PassOn | None = None
                    with suppress(StopAsyncIteration):
                        while True:
                            on_chunk = yield await rest.asend(on_chunk)
                    return
        finally:
            if self.options.explain and order.records:
                _explain(order)

    async def _pick(self, order: Order, failed: TgError | None) -> Pick:
        """The server of the next attempt, which may have to wait for one.

        Raises:
            TgError: there is none; `failed`, if an attempt failed before.
        """
        if failed is not None and not self._find_left(order):
            raise _describe_missing(failed, order)
        pool, began = order.place.pool, perf_counter()
        waiting = self._dispatcher.submit(
            pool, order.wanted, lambda: self._find_left(order), arrived_at=order.arrived_at, size=len(order.body)
        )
        seconds = perf_counter() - began
        # Nearly no request has to wait, and to ask for the decision in vain would be one more step of each.
        made = waiting.made or await self._dispatcher.wait(pool, waiting)
        self._record(order, made, seconds)
        if isinstance(made, Rejection):
            raise _describe_missing(failed, order) if failed else _refuse(made)
        return made

    def _record(self, order: Order, made: Pick | Rejection, seconds: float) -> None:
        again = bool(order.records)
        arrived_at = None if again else order.arrived_at
        record = self._board.record(order.facts, order.wanted, made, seconds, again=again, arrived_at=arrived_at)
        order.records.append(record)
        if isinstance(made, Pick):
            order.tried.add(made.endpoint.address)

    def _find_delay(self, order: Order) -> float | None:
        """After how many seconds a second server is asked; None = never.

        A model server only writes text, so to ask two changes nothing but what it costs. What costs more than one
        answer, and what may be refused to spare the servers, is asked once.
        """
        is_single = order.request.answers == 1 and order.wanted.priority >= 0
        return self._hedging.find_delay(order.route) if is_single and len(order.left) > 1 else None

    def _start_second(self, order: Order) -> AsyncGenerator[LlmChunk, PassOn | None] | None:
        left = self._find_left(order)
        if not left or not self._hedging.spend():
            return None
        began = perf_counter()
        pick = self._dispatcher.pick_at_once(order.place.pool, order.wanted, left)
        if pick is None:
            return None
        self._record(order, pick, perf_counter() - began)
        log.debug("pool.hedged", server=pick.endpoint.name)
        return self._attempt(pick, order, order.records[-1])

    async def _attempt(
        self, pick: Pick, order: Order, record: RequestRecord
    ) -> AsyncGenerator[LlmChunk, PassOn | None]:
        """The answer of one server. However it ends, its placement does."""
        placement = pick.placement
        seen = SeenChunks(placement, record, self._now)
        outcome = LEFT
        self._log.debug("pool.picked", server=pick.endpoint.name, reasons=pick.reasons)
        try:
            async with aclosing(
                self.stream_answer(order.request, lambda connection: self._ask(connection, order, pick))
            ) as chunks:
                with suppress(StopAsyncIteration):
                    while True:
                        chunk = await chunks.asend(None if seen.on_chunk is None else seen.pass_on)
                        seen.see(chunk)
                        seen.on_chunk = yield chunk
            outcome = ""
        except TgError as error:
            record.fail(error.type, error.status, self._now())
            if isinstance(error, NotFound) and order.place.adapter is not None:
                self._scheduler.forget_adapter(pick.endpoint, order.place.adapter, self._now())
            raise
        finally:
            usage, now = seen.usage, self._now()
            placement.finish(usage, now)
            record.end(usage, now, outcome)

    async def _ask(self, connection: PoolConnection, order: Order, pick: Pick) -> HttpAnswer:
        """The answer, whose header may tell the server's load."""
        if order.place.adapter is not None and order.place.route:
            await self._loader.load(pick.endpoint, order.place.adapter, connection.load)
        answer = await connection.ask(pick.endpoint.address, order.body)
        header = answer.headers.get(LOAD_RESPONSE_HEADER)
        if header and self._pools is not None:
            self._pools.read_load(pick.endpoint, header, self._now())
        return answer

    def _find_place(self, request: TextCompletionRequest, view: PoolView) -> Destination:
        asked = request.adapter or self.upstream_model
        found = view.catalogue.resolve(asked, self._random, served=view.served)
        if found is not None:
            is_adapter = request.adapter is not None and found.model not in view.served.get(found.pool, ())
            return msgspec.structs.replace(found, adapter=found.model) if is_adapter else found
        # Without resources nothing says which models there are: the servers do, with 404.
        if len(view.catalogue.pools) == 1 and not (request.adapter and view.catalogue.models):
            return Destination(next(iter(view.catalogue.pools)), asked, request.adapter)
        what = "adapter" if request.adapter else "model"
        raise NotFound(f"no route leads to the {what} of this request; known are {', '.join(view.catalogue.models)}")

    def _find_left(self, order: Order) -> Sequence[Endpoint]:
        """The servers of the pool now that were not asked; without those that nobody can reach, if there are others."""
        members, unreachable = self.view.members.get(order.place.pool, ()), self.unreachable
        if not unreachable and not order.tried:
            # The pool's own tuple, of which the scheduler knows by the last request what is to be known.
            order.left, order.unreachable = members, 0
            return members
        eligible = [endpoint for endpoint in members if endpoint.address not in unreachable] or members
        order.left = [endpoint for endpoint in eligible if endpoint.address not in order.tried]
        order.unreachable = len(members) - len(eligible)
        return order.left

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _settle(order: Order, first: RequestRecord, *, won: bool, now: float) -> None:
    """Note which of two attempts lost, if there are two, before it is cancelled."""
    newest = order.records[-1]
    if newest is not first:
        (newest if won else first).lose(now)


def _explain(order: Order) -> None:
    """One line for a request, without anything of its prompt or its answer."""
    last = order.last
    log.info(
        "pool.request",
        model=order.model[:MAX_LOGGED],
        pool=order.place.pool,
        route=order.place.route,
        server=last.server,
        reasons=explain(last),
        attempts=len(order.records),
        outcome=last.outcome,
        first=last.first_token_seconds,
        seconds=last.seconds,
    )


def _goes_on(error: TgError, pick: Pick) -> bool:
    """Whether another server may do better; a wrong request is wrong everywhere."""
    if not (error.retryable or isinstance(error, NotFound | ProtocolError)):
        return False
    log.warning("pool.failover", server=pick.endpoint.name, address=pick.endpoint.address, error=error.type)
    return True


def _name_model(body: bytes, configured: str, model: str) -> bytes:
    """The body of a request for another model, which is its first member."""
    if model == configured:
        return body
    return b'{"model":' + _encode(model) + body[len(b'{"model":' + _encode(configured)) :]


def _describe(request: TextCompletionRequest, place: Destination, view: PoolView, body: bytes) -> InstanceRequest:
    """What the scheduler is told. The server streams, whatever the client asked for."""
    prompt = read_prompt(_PROMPT.decode(body))
    return InstanceRequest(
        model=place.model if place.adapter is None else view.find_base(place.pool),
        adapter=place.adapter,
        prompt_tokens=prompt.tokens,
        prefix=fingerprint_prompt(prompt.text, place.model, place.adapter),
        priority=min(place.priority, SHEDDABLE_PRIORITY) if request.sheddable else place.priority,
        objective=find_goal(place.promises),
        max_tokens=request.sampling.max_tokens if request.sampling else None,
        flow=request.user or "default-flow",
        route=place.route,
    )


def _describe_missing(failed: TgError, order: Order) -> TgError:
    """What became of the last attempt. Where it was a 404, the model's own options are not what is wrong."""
    if not isinstance(failed, NotFound):
        return failed
    what = "model" if order.place.adapter is None else "adapter"
    name = order.place.model[:MAX_LOGGED]
    if order.unreachable:
        return Unavailable(f"no server of the pool that can be reached has the {what} {name!r}; ask again later")
    return NotFound(f"no server of the pool {order.place.pool} has the {what} {name!r}; load it there, or ask another")


def _refuse(rejection: Rejection) -> TgError:
    kind, sentence = _REFUSALS[rejection.status]
    return kind(f"{sentence} ({rejection.reason})", retry_after=rejection.retry_after)
