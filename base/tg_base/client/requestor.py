"""Caller -> bus -> caller: the requesting end of all streams of one process.

The requestor is the only authority over a stream. It names the stream, asks, and cancels it; `attempts.py` decides what
happens in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from tg_base.bus import Bus
from tg_base.client.admission import AdmissionControl, Announced
from tg_base.client.asked_stream import AskedStream, Terms
from tg_base.client.attempt import Attempt, StreamOrigin
from tg_base.client.attempts import Attempts
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.call_account import CallAccount
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.client.liveness import Liveness
from tg_base.client.plain_answers import PlainAnswers
from tg_base.client.request_sender import RequestSender
from tg_base.client.response_stream import ResponseStream
from tg_base.client.route_plans import RoutePlans, RouteRun
from tg_base.client.shadows import Shadows
from tg_base.client.shared_time import SharedTime
from tg_base.client.warm_processes import WarmProcesses
from tg_base.protocol import (
    IDLE_LINK_SECONDS,
    Adopt,
    AwakeClock,
    EncodedRequest,
    HeartbeatTiming,
    Route,
    RoutePlan,
    StreamKey,
    Subscriptions,
)
from tg_base.runtime import running
from tg_base.telemetry import REFUSALS, new_id, trace
from tg_schema import TgError
from tg_schema.errors import Unavailable
from tg_schema.features import CONTINUATION, Feature
from tg_schema.service_spec import Req, Resp
from tg_schema.topics import Topics


class Requestor:
    """Enter it to open the inbox; leave it to cancel the running requests.

    Args:
        bus: carries everything.
        topics: the names of our own topics.
        queues: request topics that will be used. If there are any, processors are asked on entering to announce
            themselves; otherwise at the first use of a queue without a known processor.
        timing: the heartbeat interval, and when a silent processor counts as dead.
        time: the shared time of all requestors on this bus, from the processors' announcements.
        plans: the routes that it carries out, by name.

    Attributes:
        bus, topics, time: as given.
        routes: the plans, and which of their models answer.
        admission: knows the capacity of each queue. Set on entering, like `presence`.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        *,
        queues: tuple[str, ...] = (),
        timing: HeartbeatTiming | None = None,
        time: SharedTime | None = None,
        plans: Mapping[str, RoutePlan] | None = None,
    ) -> None:
        self.bus = bus
        self.topics = topics
        self._queues = queues
        self._timing = timing or HeartbeatTiming()
        self.time = time or SharedTime()
        self.routes = RoutePlans(plans or {}, lambda queue: self.admission.find(queue))
        self._shadows = Shadows(self.stream)
        self._streams: dict[str, AskedStream] = {}
        self._calls = CallAccount(bus, topics)
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        clock = self._clock = AwakeClock()
        controls = self._controls = ControlSender(self.bus, self.topics, clock)
        inbox = self._inbox = Inbox(
            self.topics.inbox(new_id()),
            controls,
            clock,
            lambda *frame: self._attempts.on_frame(*frame),
            on_link=lambda processor: self.presence.notice(processor),
            on_other=lambda delivery: self._liveness.on_inbox(delivery),
            streams=self._streams,
        )
        self._liveness = Liveness(
            self.bus, self.topics, inbox, controls, timing=self._timing, clock=clock, time=self.time
        )
        self.presence = self._liveness.presence
        self.admission = AdmissionControl(self.presence)
        warm = WarmProcesses(self.presence, self.admission)
        self._sender = RequestSender(
            self.bus,
            self.topics,
            inbox.topic,
            clock=clock,
            controls=controls,
            warm=warm,
            read_plain=lambda topic: self._plain.read(topic),
        )
        self._attempts = Attempts(
            self.bus,
            self.topics,
            clock,
            controls,
            streams=self._streams,
            sender=self._sender,
            warm=warm,
            liveness=self._liveness,
            admission=self.admission,
            calls=self._calls,
        )
        handlers = {inbox.topic: inbox.take, self.topics.presence: self._liveness.on_presence}
        async with AsyncExitStack() as stack:
            self._subscriptions = await stack.enter_async_context(Subscriptions(self.bus, give_up=self._timing.give_up))
            self._liveness.end = self._subscriptions.end
            for topic, handler in handlers.items():
                await stack.enter_async_context(self._subscriptions.each(topic, handler))
            self._plain = await stack.enter_async_context(PlainAnswers(self._subscriptions, self._attempts))
            stack.callback(controls.close)
            stack.callback(self._liveness.close)
            stack.callback(self._sender.close)
            await stack.enter_async_context(self._calls.running())
            await stack.enter_async_context(running(self._watch()))
            await stack.enter_async_context(running(self._send_heartbeats()))
            self._exit = stack.pop_all()
        # Only now: the replies come on the subscription to presence.
        if self._queues:
            self._liveness.ask()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._shadows.close()
        self._attempts.shut_down()
        # Send the cancels of unfinished streams before the subscriptions close.
        await self._controls.flush(1.0)
        await self._calls.flush()
        await self._exit.__aexit__(kind, error, tb)

    @property
    def has_failed_subscription(self) -> bool:
        """Whether a subscription has failed and is not open again yet, so that answers or presence may be missed."""
        return bool(self._subscriptions.failed)

    @property
    def refusal(self) -> str | None:
        """Why the bus refused our last request for announcements; None = it accepted it, or there was none."""
        return self._controls.refusal

    def stream(
        self,
        route: Route[Req, Resp],
        request: Req | EncodedRequest,
        *,
        timeout: float,
        total: float | None = None,
        bounded: bool = False,
        permit: BeginPermit | None = None,
        kept: bool = False,
    ) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Ask, and read the answer inside `async with`; leaving early stops the work, down to the provider.

        Args:
            route: the service.
            request: the request's record, unchanged or encoded.
            timeout: seconds until the first record, and of silence between two. A non-streaming answer is one record;
                until it comes, the processor's "accepted" frames count as progress.
            total: seconds for the whole answer; None = the limits of the model or the agent.
            bounded: apply admission control (`tg_base.client.admission`); otherwise the request is always queued.
            permit: asked before a processor may begin; at most one begins. None = they begin at once.
            kept: whether the answer continues for a while if this process dies, so that another one may `adopt` it.

        Raises (on entering):
            BadRequest: the request needs features that not every processor of its queue announces.
            NotFound: the route has a plan that does not exist any more.
            Unavailable: no live processor serves this (`retry_after` is set), or a processor of the queue does not
                support permits.
            RateLimited: too many requests wait for this; `retry_after` is set.
            BusError: the bus did not take the request.
            TooLarge: the request is over the limit of the bus, or of what every processor fetches in parts.
        """
        terms = Terms(timeout, total, bounded, permit, kept)
        opening = self._open if route.plan is None else self._open_planned
        return _EnteredStream(partial(opening, route, request, terms), self._attempts.close)

    def adopt(
        self,
        route: Route[Req, Resp],
        request: Req | EncodedRequest,
        origin: StreamOrigin,
        after: int,
        *,
        timeout: float,
    ) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Read on in a kept answer whose requestor has died or left.

        Args:
            route: the service.
            request: the other requestor's request, for the record of usage.
            origin: where the answer is made.
            after: how many frames are known, as `ResponseStream.taken` counts them.
            timeout: as for `stream`.

        The stream fails with Unavailable if the processor has died, or does not have the answer.
        """
        return _EnteredStream(partial(self._adopt, route, request, origin, after, timeout), self._attempts.close)

    async def _adopt(
        self, route: Route[Any, Any], request: object, origin: StreamOrigin, after: int, timeout: float
    ) -> AskedStream:
        name, now = origin.stream, asyncio.get_running_loop().time()
        attempt = Attempt(StreamKey(name, 1), route, trace.child(name), self._clock(), now)
        stream = AskedStream(attempt, request, Terms(timeout), needed=_list_features(route, request))
        # Nobody else may be asked.
        stream.forget_request()
        attempt.adopt(origin, after)
        stream.taken = after
        self._streams[stream.id] = stream
        self.admission.unanswered[route.request] += 1
        # From now on its process can be found dead.
        self.presence.notice(origin.processor)
        self._controls.send(origin.processor, Adopt(attempt.key, self._inbox.topic, after))
        return stream

    async def _open_planned(self, route: Route[Any, Any], request: object, terms: Terms) -> AskedStream:
        """Ask the first model of a route that takes the request."""
        needed = _list_features(route, request)
        run = self.routes.begin(route, needed)
        stream: AskedStream | None = None
        try:
            while stream is None:
                try:
                    stream = await self._open(run.route, request, terms, run)
                except TgError as error:
                    if not run.go_on(error):
                        raise
        finally:
            if stream is None:
                run.leave()
        self._shadows.copy(stream, request, needed)
        return stream

    async def _open(
        self, route: Route[Any, Any], request: object, terms: Terms, run: RouteRun | None = None
    ) -> AskedStream:
        # Look up features and announcements once, and hand them on.
        needed, announced = _list_features(route, request), self.admission.find(route.request)
        if not route.plain:
            # Do not call `check`: each request passes here, and hardly any has to wait.
            if not announced.served or len(announced.models) > 1:
                announced = await self._find_first(route)
            announced.check(needed)
        if terms.bounded:
            self.admission.check(route, announced)
        name, now = new_id(), asyncio.get_running_loop().time()
        attempt = Attempt(StreamKey(name, 1), route, trace.child(name), self._clock(), now)
        continued = CONTINUATION in announced.features
        stream = AskedStream(attempt, request, terms, needed=needed, continued=continued, run=run)
        self._streams[stream.id] = stream
        # Before the publish, which waits: requests that arrive meanwhile must count this one.
        self.admission.unanswered[route.request] += 1
        published = False
        try:
            await self._sender.ask(stream, announced)
            published = True
        finally:
            if not published:
                # A request that was not sent is no call of a model.
                stream.attempt.operation = None
                self._attempts.close(stream)
        return stream

    async def check(self, route: Route[Req, Any], request: Req | EncodedRequest) -> None:
        """Before queuing, refuse a request that no processor could serve, with `stream`'s BadRequest or Unavailable."""
        needed = _list_features(route, request)
        (await self._find_first(self.routes.find_able(route, needed))).check(needed)

    async def until_served(self, route: Route[Any, Any]) -> bool:
        """Wait for a first processor, as `Liveness.until_served`; returns whether it had to wait."""
        if route.plan is not None and self.routes.is_served(route):
            return False
        return await self._liveness.until_served(route)

    async def _find_first(self, route: Route[Any, Any]) -> Announced:
        """What the queue's processors announce, once there is one and all have the same model."""
        try:
            await self.until_served(route)
        except Unavailable:
            REFUSALS.labels(route.spec.name, "deserted").inc()
            raise
        return await self.admission.settle(route)

    def tell_peers(self, message: object, peer: str | None = None) -> None:
        """Send a record to all other requestors on this bus, or to one by its inbox; it may be lost."""
        self._controls.tell_peers(message, self._inbox.topic, peer)

    def hear_peers(self, take: Callable[[str, bytes], None]) -> None:
        """From now on, call `take` with the inbox of another requestor and each record that it sends."""
        self._liveness.on_peer = take

    def stop(self, name: str) -> None:
        """Stop the work on a stream now, not only when its caller leaves; does nothing if there is no such stream."""
        if (stream := self._streams.get(name)) is not None and not stream.complete:
            self._attempts.stop(stream)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._timing.tick)
            self._controls.sweep()
            dead, lost = self._liveness.find_dead()
            # Drop a link only after its processor has closed it; otherwise a new epoch would begin.
            self._inbox.sweep(IDLE_LINK_SECONDS + self._timing.dead_after)
            self._attempts.check(dead, lost)

    async def _send_heartbeats(self) -> None:
        while True:
            # Do not sleep on the awake clock, on which only one task may sleep.
            await asyncio.sleep(self._timing.interval)
            self._liveness.send_heartbeats(self._streams.values())


class _EnteredStream(AbstractAsyncContextManager[AskedStream]):
    """The result of `Requestor.stream`, which asks when it is entered.

    Not a generator, which would take 0.7 KiB per answer.

    Args:
        open_: publishes the request, and returns its stream.
        close: stops the stream if it is not complete.
    """

    __slots__ = ("_close", "_open", "_stream")

    def __init__(self, open_: Callable[[], Awaitable[AskedStream]], close: Callable[[AskedStream], None]) -> None:
        self._open = open_
        self._close = close

    @override
    async def __aenter__(self) -> AskedStream:
        self._stream = await self._open()
        # The processor has the request now.
        del self._open
        return self._stream

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._close(self._stream)
        if self._stream.attempt.span.began:
            self._stream.end_span(error)


def _list_features(route: Route[Any, Any], request: Any) -> frozenset[Feature]:
    """The features that a request needs."""
    return request.features if isinstance(request, EncodedRequest) else route.spec.features(request)
