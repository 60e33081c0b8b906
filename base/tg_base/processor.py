"""Work queue -> service -> reply: runs one service for as long as it is entered.

Takes a request only when a slot is free, says so, acknowledges it, works on it as a task of its own, and makes sure
that every stream has exactly one end.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, closing
from types import TracebackType
from typing import Any, Self, cast

import structlog

from tg_base import trace
from tg_base.awake_clock import AwakeClock
from tg_base.background import each, report, running
from tg_base.bus.api import Bus, Delivery
from tg_base.call import Call
from tg_base.cancelled_keys import CancelledKeys
from tg_base.frames import CONTROL, Beat, Cancel, Presence, Resend, StreamKey
from tg_base.links import Links
from tg_base.liveness import Liveness
from tg_base.metrics import ACTIVE, POISON, QUEUE_WAIT, STREAMS
from tg_base.reply import LinkReply, PlainReply, Reply
from tg_base.route import Route
from tg_base.service import Service
from tg_schema.codec import decode, encode
from tg_schema.errors import BadRequest, Internal, TgError, Timeout, Unavailable
from tg_schema.topics import Topics

log = structlog.get_logger()

LONGEST = 1800.0
"""Seconds for a request whose requestor names no deadline."""


class Processor:
    """Enter it to serve; leave it to drain: what runs may finish within `grace` seconds, then ends with an error.

    Args:
        bus: what carries everything.
        topics: the names of our own topics.
        service: what answers. It is closed on leaving.
        routes: the queues to read; all of the service's kind.
        models: the models that it announces.
        liveness: how often it beats, and when it takes a silent requestor for dead.
        grace: seconds that running requests get on leaving.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        service: Service[Any, Any],
        routes: tuple[Route[Any, Any], ...],
        *,
        models: tuple[str, ...] = (),
        liveness: Liveness | None = None,
        grace: float = 10.0,
    ) -> None:
        self.name = f"{service.spec.name}-{uuid.uuid4().hex[:12]}"
        self._bus = bus
        self._topics = topics
        self._service = service
        self._routes = routes
        self._models = models
        self._liveness = liveness or Liveness()
        self._grace = grace
        self._slots = asyncio.Semaphore(service.capacity)
        self._running: dict[StreamKey, asyncio.Task[None]] = {}
        self._cancelled = CancelledKeys(time.monotonic)
        self._leaving = False
        self._active = ACTIVE.labels(service.spec.name)
        self._queue_wait = QUEUE_WAIT.labels(service.spec.name)

    async def __aenter__(self) -> Self:
        self._clock = AwakeClock()
        self._links = Links(self._bus, self.name, self._clock)
        async with AsyncExitStack() as stack:
            controls = [self._topics.control(self.name)]
            controls += [self._topics.queue_control(route.request) for route in self._routes]
            for topic in controls:
                deliveries = await stack.enter_async_context(self._bus.subscribe(topic, None))
                await stack.enter_async_context(running(each(deliveries, self._on_control, topic)))
            await stack.enter_async_context(running(self._beat()))
            pumps = await stack.enter_async_context(AsyncExitStack())
            for route in self._routes:
                group = f"tg-{self._service.spec.name}"
                requests = await pumps.enter_async_context(self._bus.subscribe(route.request, group, prefetch=0))
                await pumps.enter_async_context(running(self._pump(route, requests)))
            await self._announce()
            self._pumps, self._rest = pumps.pop_all(), stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._leaving = True
        await self._pumps.aclose()
        await self._announce()
        await self._drain()
        await self._links.aclose(1.0)
        await self._rest.aclose()
        await self._service.aclose()

    async def _drain(self) -> None:
        if self._running:
            _, late = await asyncio.wait(self._running.values(), timeout=self._grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _pump(self, route: Route[Any, Any], requests: AsyncIterator[Delivery]) -> None:
        while True:
            await self._slots.acquire()
            delivery = await anext(requests)
            task = asyncio.create_task(self._take(route, delivery), name="request")
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._slots.release()
        report(task)

    async def _take(self, route: Route[Any, Any], delivery: Delivery) -> None:
        """One message of the queue: worked on, dropped because nobody waits for it, or refused."""
        call = None
        try:
            call = Call.of(delivery)
            request = decode(route.spec.request, delivery.body)
        except BadRequest as error:
            await self._refuse(route, delivery, call, error)
            return
        if call.expired or call.key in self._running or self._cancelled.take(call.key):
            STREAMS.labels(route.spec.name, "dropped").inc()
            delivery.ack()
            return
        self._running[call.key] = cast("asyncio.Task[None]", asyncio.current_task())
        self._active.inc()
        try:
            delivery.ack()
            self._queue_wait.observe(delivery.age)
            trace.enter(call.key.stream, call.traceparent)
            reply = await self._reply(route, call)
            reply.accept()
            with closing(reply):
                await self._answer(route, request, reply, call)
        finally:
            self._active.dec()
            del self._running[call.key]

    async def _answer(self, route: Route[Any, Any], request: Any, reply: Reply, call: Call) -> None:
        started = time.monotonic()
        outcome = "ok"
        try:
            await self._work(request, reply, call)
        except asyncio.CancelledError:
            outcome = "cancelled"
            if self._leaving:
                await reply.send(route.spec.response.failed(Unavailable("the processor shuts down; ask again").record))
        except TgError as error:
            outcome = error.type
            await reply.send(route.spec.response.failed(error.record))
        except Exception:
            outcome = Internal.type
            log.exception("request.defect")
            defect = Internal("the service failed; its log says why, under the stream's id")
            await reply.send(route.spec.response.failed(defect.record))
        finally:
            STREAMS.labels(route.spec.name, outcome).inc()
            seconds = round(time.monotonic() - started, 6)
            log.info("request.done", service=route.spec.name, flow=route.flow, outcome=outcome, seconds=seconds)

    async def _work(self, request: Any, reply: Reply, call: Call) -> None:
        limit = asyncio.timeout(LONGEST if call.remaining is None else call.remaining)
        try:
            async with limit, aclosing(self._service.on_request(request)) as records:
                async for record in records:
                    await reply.send(record)
                    if record.last:
                        return
        except TimeoutError:
            if limit.expired():
                raise Timeout("the request's deadline has passed") from None
            raise
        raise Internal("the service ended without a last response")

    async def _refuse(self, route: Route[Any, Any], delivery: Delivery, call: Call | None, error: BadRequest) -> None:
        POISON.labels(route.request).inc()
        log.warning("request.refused", topic=route.request, reason=error.message)
        await self._bus.publish(self._topics.dead_letter(route.request), delivery.body, {"reason": error.message})
        stream = delivery.properties.get("id")
        if stream:
            call = call or Call(StreamKey(stream, 1), delivery.properties.get("reply"))
            with closing(await self._reply(route, call)) as reply:
                await reply.send(route.spec.response.failed(error.record))
        delivery.ack()

    async def _reply(self, route: Route[Any, Any], call: Call) -> Reply:
        if call.reply is None:
            return PlainReply(self._bus, route.response, call.key.stream)
        return LinkReply(await self._links.to(call.reply), call.key)

    def _on_control(self, delivery: Delivery) -> None:
        match control := decode(CONTROL, delivery.body):
            case Cancel():
                for key in control.streams:
                    self._cancel(key, control.ttl)
            case Beat():
                self._links.on_beat(control)
                for key in control.cancelled:
                    self._cancel(key, 0.0)
            case Resend():
                self._links.on_resend(control)

    def _cancel(self, key: StreamKey, ttl: float) -> None:
        task = self._running.get(key)
        if task is not None:
            task.cancel()
        elif ttl > 0:
            self._cancelled.add(key, ttl)

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(self._liveness.beat)
            for key in self._links.silent(self._liveness.dead_after):
                self._cancel(key, 0.0)
            await self._links.sweep(self._liveness.dead_after)
            await self._announce()

    async def _announce(self) -> None:
        presence = Presence(
            processor=self.name,
            queues=tuple(route.request for route in self._routes),
            capacity=self._service.capacity,
            in_flight=len(self._running),
            models=self._models,
            links=self._links.states,
            leaving=self._leaving,
        )
        try:
            await self._bus.publish(self._topics.presence, encode(presence), {})
        except TgError as error:
            log.warning("presence.lost", error=error.type)
