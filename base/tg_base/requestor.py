"""Caller -> bus -> caller: one process's end of all its streams.

The requestor is the only authority over a stream: it names it, binds it to the first processor that accepts it, starts
another attempt as long as nothing was relayed, and cancels.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import structlog

from tg_base import trace
from tg_base.awake_clock import AwakeClock
from tg_base.background import each, running
from tg_base.backlog import Backlog
from tg_base.bus.api import Bus, Delivery
from tg_base.call import Call
from tg_base.controls import Controls
from tg_base.frames import Frame, Presence, StreamKey, Wanted
from tg_base.inbox import Inbox
from tg_base.liveness import Liveness
from tg_base.metrics import ATTEMPTS, REFUSALS
from tg_base.presence_table import PresenceTable
from tg_base.response_stream import ResponseStream
from tg_base.route import Route
from tg_schema.codec import decode, encode
from tg_schema.errors import BadRequest, BusError, TgError, Unavailable
from tg_schema.service_spec import Req, Resp
from tg_schema.topics import Topics

log = structlog.get_logger()

MOST_ATTEMPTS = 3
"""How many processors may die over a request before its stream fails."""
ASKING = 4.5
"""Seconds that the bus may take to accept a request."""


class _Stream(ResponseStream[Any]):
    """A stream with what it takes to ask for it again."""

    def __init__(self, route: Route[Any, Any], request: object, timeout: float) -> None:
        super().__init__(uuid.uuid4().hex, route.spec.response, timeout)
        self.route = route
        self.body = encode(request)
        self.asked = len(self.body)
        self.attempt = 1
        self.asked_at = 0.0
        self.processor: str | None = None

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.id, self.attempt)


class Requestor:
    """Enter it to open the inbox; leave it to cancel what still runs.

    Args:
        bus: what carries everything.
        topics: the names of our own topics.
        plain: response topics of peers that know no inbox.
        liveness: how often it beats, and when it takes a silent processor for dead.
    """

    def __init__(
        self, bus: Bus, topics: Topics, *, plain: tuple[str, ...] = (), liveness: Liveness | None = None
    ) -> None:
        self._bus = bus
        self._topics = topics
        self._plain = plain
        self._liveness = liveness or Liveness()
        self._streams: dict[str, _Stream] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        clock = self._clock = AwakeClock()
        self.presence = PresenceTable(self._liveness, clock)
        self._controls = Controls(self._bus, self._topics, clock)
        self._inbox = Inbox(self._topics.inbox(uuid.uuid4().hex), self._controls, clock)
        self._backlog = Backlog(self.presence, self._inbox.topic)
        handlers = {self._inbox.topic: self._on_inbox, self._topics.presence: self._on_presence}
        handlers |= dict.fromkeys(self._plain, self._on_plain)
        async with AsyncExitStack() as stack:
            for topic, handler in handlers.items():
                deliveries = await stack.enter_async_context(self._bus.subscribe(topic, None))
                await stack.enter_async_context(running(each(deliveries, handler, topic)))
            await stack.enter_async_context(running(self._controls.run()))
            await stack.enter_async_context(running(self._watch()))
            await stack.enter_async_context(running(self._beat()))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for stream in list(self._streams.values()):
            self._abandon(stream, Unavailable("this process is shutting down; ask again"))
        for task in self._asking:
            task.cancel()
        await self._controls.flush(1.0)
        await self._exit.aclose()

    async def ping(self) -> None:
        """Return once the bus has answered.

        Raises:
            BusError: it did not, within a few seconds.
        """
        await self._bus.ping()

    @asynccontextmanager
    async def stream(
        self, route: Route[Req, Resp], request: Req, *, timeout: float, bounded: bool = False
    ) -> AsyncIterator[ResponseStream[Resp]]:
        """Ask, and read the answer inside `async with`; leaving early stops the work, wherever it is done.

        Args:
            route: the service.
            request: what to ask.
            timeout: seconds until the whole answer must have come.
            bounded: refuse it where too many wait (`tg_base.backlog`); otherwise it waits, whatever its place.

        Raises:
            Unavailable: nobody serves this; `retry_after` is set.
            RateLimited: too many wait for this; `retry_after` is set.
            BusError: the bus did not take the request.
            TooLarge: the request is over the bus's limit.
        """
        if not route.plain and self.presence.deserted(route.request):
            REFUSALS.labels(route.spec.name, "deserted").inc()
            raise _nobody(route)
        if bounded:
            self._backlog.check(route)
        stream = _Stream(route, request, timeout)
        self._streams[stream.id] = stream
        self._backlog.asked[route.request] += 1
        try:
            await self._ask(stream)
            yield stream
        finally:
            del self._streams[stream.id]
            self._backlog.asked[route.request] -= 1
            if not stream.complete:
                self._cancel(stream)
            stream.close()

    async def _ask(self, stream: _Stream) -> None:
        stream.asked_at = self._clock()
        call = Call(stream.key, self._inbox.topic, max(stream.remaining, 0.0), trace.traceparent())
        try:
            async with asyncio.timeout(ASKING):
                await self._bus.publish(stream.route.request, stream.body, call.properties)
        except TimeoutError:
            raise BusError("the bus did not take the request in time; ask again") from None

    def _cancel(self, stream: _Stream) -> None:
        if stream.processor is not None:
            self._controls.cancel(stream.processor, stream.key)
        else:
            self._controls.cancel_queued(stream.route.request, stream.key, max(stream.remaining, 0.0))

    def _abandon(self, stream: _Stream, error: TgError) -> None:
        stream.fail(error)
        self._cancel(stream)

    def _on_inbox(self, delivery: Delivery) -> None:
        for processor, frame in self._inbox.take(delivery):
            self._on_frame(processor, frame)

    def _on_frame(self, processor: str, frame: Frame) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None or stream.attempt != frame.attempt or stream.processor not in {None, processor}:
            if not frame.last:
                self._controls.cancel(processor, StreamKey(frame.stream, frame.attempt))
            return
        stream.processor = processor
        if frame.asks:
            self._on_asked(stream, processor)
        elif not frame.accepted:
            stream.put(bytes(frame.record), last=frame.last)
            if stream.failed and not frame.last:
                self._cancel(stream)

    def _on_asked(self, stream: _Stream, processor: str) -> None:
        """A request that may have been delivered before is worked on again only if nothing of its answer has come."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
        else:
            self._controls.say(processor, Wanted(stream.key))

    def _on_plain(self, delivery: Delivery) -> None:
        stream = self._streams.get(delivery.properties.get("id", ""))
        if stream is not None and stream.processor is None:
            try:
                last = decode(stream.route.spec.response, delivery.body).last
            except BadRequest:
                last = True
            stream.put(delivery.body, last=last)

    def _on_presence(self, delivery: Delivery) -> None:
        presence = decode(Presence, delivery.body)
        self.presence.heard(presence)
        self._inbox.announced(presence.processor, presence.links.get(self._inbox.topic))

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._liveness.tick)
            dead = self.presence.bury()
            self._inbox.forget(set(dead))
            lost = self._inbox.sweep(self._liveness.dead_after)
            for stream in [stream for stream in self._streams.values() if not stream.failed]:
                self._check(stream, dead, lost)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._liveness.beat)
            for processor in self._inbox.processors | {stream.processor for stream in self._streams.values()}:
                if processor is not None:
                    self._inbox.beat(processor)

    def _check(self, stream: _Stream, dead: dict[str, Presence], lost: set[str]) -> None:
        """A dead processor's stream goes elsewhere if nothing was relayed, and ends otherwise."""
        if stream.processor in lost:
            self._abandon(stream, BusError("a part of the answer was lost on the bus; ask again"))
        elif stream.processor in dead:
            if stream.relayed or stream.attempt >= MOST_ATTEMPTS:
                stream.fail(Unavailable("the processor died in the middle of the answer; ask again"))
            else:
                self._ask_elsewhere(stream)
        elif stream.processor is None and not stream.route.plain:
            self._check_queued(stream, dead)

    def _check_queued(self, stream: _Stream, dead: dict[str, Presence]) -> None:
        """A processor may have died, or be cut off, between taking a request and saying so: then it is asked again."""
        queue = stream.route.request
        if self.presence.deserted(queue):
            self._abandon(stream, _nobody(stream.route))
        elif any(queue in presence.queues and not presence.leaving for presence in dead.values()):
            self._controls.cancel_queued(queue, stream.key, max(stream.remaining, 0.0))
            self._ask_elsewhere(stream)
        elif self.presence.passed_over(queue, stream.asked_at):
            if stream.attempt >= MOST_ATTEMPTS:
                self._abandon(stream, Unavailable("no processor takes the request; ask again"))
            else:
                self._controls.cancel_queued(queue, stream.key, max(stream.remaining, 0.0))
                self._ask_elsewhere(stream)

    def _ask_elsewhere(self, stream: _Stream) -> None:
        if self.presence.deserted(stream.route.request):
            self._abandon(stream, _nobody(stream.route))
            return
        log.warning("stream.attempt", stream=stream.id, attempt=stream.attempt + 1, died=stream.processor)
        ATTEMPTS.labels(stream.route.spec.name).inc()
        stream.attempt += 1
        stream.processor = None
        task = asyncio.create_task(self._ask_again(stream))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask_again(self, stream: _Stream) -> None:
        try:
            await self._ask(stream)
        except TgError as error:
            stream.fail(error)


def _nobody(route: Route[Any, Any]) -> Unavailable:
    return Unavailable(f"no live processor serves {route.spec.name} of flow {route.flow}", retry_after=1.0)
