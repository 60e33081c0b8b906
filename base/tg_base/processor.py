"""Work queue -> service -> reply: runs one service for as long as it is entered.

Takes a request only when a slot is free, says so, acknowledges it, works on it as a task of its own, and makes sure
that every stream has exactly one end.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from types import TracebackType
from typing import Any, Self

import structlog

from tg_base import trace
from tg_base.awake_clock import AwakeClock
from tg_base.background import each, report, running
from tg_base.bus.api import Bus, Delivery
from tg_base.call import Call
from tg_base.cancelled_keys import CancelledKeys
from tg_base.frames import CONTROL, Beat, Cancel, Presence, Resend, StreamKey, Wanted
from tg_base.links import Links
from tg_base.liveness import Liveness
from tg_base.metrics import ACTIVE, POISON, QUEUE_WAIT, STREAMS
from tg_base.reply import LinkReply, PlainReply, Reply
from tg_base.route import Route
from tg_base.service import Service
from tg_base.work import Work
from tg_schema.codec import decode, encode
from tg_schema.errors import BadRequest, TgError, Unavailable
from tg_schema.topics import Topics

log = structlog.get_logger()

PREFETCH_SHARE = 16
"""One request may wait in this process for so many that it works on side by side: enough to take a burst at the speed
of the bus, too few to keep much from others when all slots are taken. Below that capacity none waits."""
LATELY = 16
"""Requests over which the average of their times is taken, the newest counting most."""


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
        self._running: dict[StreamKey, Work] = {}
        self._cancelled = CancelledKeys(time.monotonic)
        self._leaving = False
        self._seconds = 0.0
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
            await stack.enter_async_context(running(self._watch()))
            await stack.enter_async_context(running(self._beat()))
            pumps = await stack.enter_async_context(AsyncExitStack())
            for route in self._routes:
                group = f"tg-{self._service.spec.name}"
                prefetch = self._service.capacity // PREFETCH_SHARE
                queue = self._bus.subscribe(route.request, group, prefetch=prefetch)
                requests = await pumps.enter_async_context(queue)
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
            _, late = await asyncio.wait([work.task for work in self._running.values()], timeout=self._grace)
            for work in self._running.values():
                work.stop(Unavailable("the processor shuts down; ask again"))
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
        begun = time.monotonic()
        work = self._running[call.key] = Work(self._service, route, call)
        self._active.inc()
        try:
            delivery.ack()
            self._queue_wait.observe(delivery.age)
            trace.enter(call.key.stream, call.traceparent)
            with closing(await self._reply(route, call)) as reply:
                reply.accept()
                await work.run(request, reply)
        finally:
            self._took(time.monotonic() - begun)
            self._active.dec()
            del self._running[call.key]

    def _took(self, seconds: float) -> None:
        self._seconds += (seconds - self._seconds) / LATELY if self._seconds else seconds

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
            case Wanted():
                if control.key in self._running:
                    self._running[control.key].wanted()

    def _cancel(self, key: StreamKey, ttl: float) -> None:
        work = self._running.get(key)
        if work is not None:
            work.stop()
        elif ttl > 0:
            self._cancelled.add(key, ttl)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._liveness.tick)
            for key in self._links.silent(self._liveness.dead_after):
                self._running[key].stop(Unavailable("the processor has lost its requestor; ask again"))
            await self._links.sweep(self._liveness.dead_after)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._liveness.beat)
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
            features=tuple(sorted(self._service.features)),
            seconds=round(self._seconds, 6),
        )
        try:
            await self._bus.publish(self._topics.presence, encode(presence), {})
        except TgError as error:
            log.warning("presence.lost", error=error.type)
