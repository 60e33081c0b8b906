"""Caller -> bus -> caller: the requesting end of all streams of one process.

The requestor is the only authority over a stream. It names the stream, binds it to the first processor that accepts it,
retries it while nothing was relayed, and cancels it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, Self

import structlog
from typing_extensions import override

from tg_base.bus import Bus, Delivery
from tg_base.client.admission import AdmissionControl, Announced
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.call_account import CallAccount
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.client.liveness import Liveness
from tg_base.client.response_stream import ADOPTED, AskedStream, ResponseStream, StreamOrigin, Terms
from tg_base.client.route_plans import RoutePlans
from tg_base.client.route_run import RouteRun
from tg_base.client.shadows import Shadows
from tg_base.client.shared_time import SharedTime
from tg_base.client.start_confirmations import StartConfirmations
from tg_base.client.warm_processes import WarmProcesses
from tg_base.protocol import (
    IDLE_LINK_SECONDS,
    MAX_NUMBER,
    Adopt,
    AwakeClock,
    EncodedRequest,
    Frame,
    HeartbeatTiming,
    Presence,
    Route,
    RoutePlan,
    StreamKey,
    Subscriptions,
    publish_dead_letter,
)
from tg_base.runtime import running, start_task
from tg_base.telemetry import ATTEMPTS, REFUSALS, new_id, trace
from tg_schema import TgError
from tg_schema.errors import BadRequest, BusError, RateLimited, TooLarge, Unavailable
from tg_schema.features import Feature
from tg_schema.service_spec import Req, Resp
from tg_schema.topics import Topics

log = structlog.get_logger()

MAX_ATTEMPTS = 3
"""A request without output fails when this many processors have lost it.

Silence alone never gets that far: the second silent processor ends the request.
"""
MAX_SILENCED = 2
"""Processors that may fall silent over a request. One may have been killed or cut off by chance; a second one is no
coincidence."""
ADOPTION_SECONDS = 5.0
"""Seconds that a processor has to say that it has an answer which we adopt; one of an older version says nothing."""
_NOT_ADOPTED = Unavailable("the processor does not have the answer any more; ask again")
MAX_LEFT = 1024
"""Streams whose late frames stop nothing, since another requestor adopts them: the newest ones. Frames come late for
seconds, and such a cancel counts no more once the stream is adopted."""
PUBLISH_TIMEOUT_SECONDS = 4.5
"""Seconds that the bus has to accept a request."""


class Requestor:
    """Enter it to open the inbox; leave it to cancel what still runs.

    Args:
        bus: carries everything.
        topics: the names of our own topics.
        plain: response topics of plain peers, which know no inbox; others are read from their first request on.
        queues: request topics that will be used: if there is one, the processors are asked on entering to announce
            themselves; otherwise at the first use of a queue of which none is known.
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
        plain: tuple[str, ...] = (),
        queues: tuple[str, ...] = (),
        timing: HeartbeatTiming | None = None,
        time: SharedTime | None = None,
        plans: Mapping[str, RoutePlan] | None = None,
    ) -> None:
        self.bus = bus
        self.topics = topics
        self._plain = {*plain}
        self._opening_plain = asyncio.Lock()
        self._queues = queues
        self._timing = timing or HeartbeatTiming()
        self.time = time or SharedTime()
        self.routes = RoutePlans(plans or {}, lambda queue: self.admission.find(queue))
        self._shadows = Shadows(self.stream)
        self._streams: dict[str, AskedStream] = {}
        # Those that another requestor adopts: their late frames stop nothing.
        self._left: deque[str] = deque(maxlen=MAX_LEFT)
        self._asking: set[asyncio.Task[object]] = set()
        self._calls = CallAccount(bus, topics)
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        clock = self._clock = AwakeClock()
        self._controls = ControlSender(self.bus, self.topics, clock)
        self._starts = StartConfirmations(self.bus, self.topics, self._controls)
        self._inbox = Inbox(
            self.topics.inbox(new_id()),
            self._controls,
            clock,
            self._on_frame,
            on_link=lambda processor: self.presence.notice(processor),
            on_other=lambda delivery: self._liveness.on_inbox(delivery),
            streams=self._streams,
        )
        self._liveness = Liveness(
            self.bus, self.topics, self._inbox, self._controls, timing=self._timing, clock=clock, time=self.time
        )
        self.presence = self._liveness.presence
        self.admission = AdmissionControl(self.presence)
        self._warm = WarmProcesses(self.bus, self.topics, self._inbox.topic, self.presence, self.admission)
        handlers = {self._inbox.topic: self._inbox.take, self.topics.presence: self._liveness.on_presence}
        handlers |= dict.fromkeys(self._plain, self._on_plain)
        async with AsyncExitStack() as stack:
            self._subscriptions = await stack.enter_async_context(Subscriptions(self.bus, give_up=self._timing.give_up))
            self._liveness.end = self._subscriptions.end
            for topic, handler in handlers.items():
                await stack.enter_async_context(self._subscriptions.each(topic, handler))
            stack.callback(self._controls.close)
            stack.callback(self._liveness.close)
            stack.callback(self._starts.close)
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
        for stream in list(self._streams.values()):
            self._abandon(stream, Unavailable("this process is shutting down; ask again"))
        for task in self._asking:
            task.cancel()
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
            request: the request's record, as it is or encoded.
            timeout: seconds until the first record, and of silence between two. A non-streaming answer is one record;
                until it comes, the processor's "accepted" frames count as progress.
            total: seconds for the whole answer; None = the limits of the model or the agent.
            bounded: apply admission control (`tg_base.client.admission`); otherwise the request is always queued.
            permit: asked before a processor may begin; at most one begins. None = they begin at once.
            kept: whether the answer goes on for a while if this process dies, so that another one may `adopt` it.

        Raises (on entering):
            BadRequest: the request needs features that not every processor of its queue announces.
            NotFound: the route has a plan that does not exist any more.
            Unavailable: no live processor serves this (`retry_after` is set), or a processor of the queue does not
                support permits.
            RateLimited: too many requests wait for this; `retry_after` is set.
            BusError: the bus did not take the request.
            TooLarge: the request is over the limit of the bus, or of what every processor fetches in parts.
        """
        terms = Terms(timeout, total, permit, kept=kept)
        opening = self._open if route.plan is None else self._open_planned
        return _EnteredStream(partial(opening, route, request, terms, bounded=bounded), self._close)

    def adopt(
        self,
        route: Route[Req, Resp],
        request: Req | EncodedRequest,
        origin: StreamOrigin,
        after: int,
        *,
        timeout: float,
    ) -> AbstractAsyncContextManager[ResponseStream[Resp]]:
        """Read on in a kept answer that another requestor has asked for, and has died or left.

        Args:
            route: the service.
            request: what the other one has asked, for the record of usage.
            origin: where it is made.
            after: the frames that are known, as `ResponseStream.taken` counts them.
            timeout: as of `stream`.

        The stream fails with Unavailable if the processor has died, or does not have the answer.
        """
        return _EnteredStream(partial(self._adopt, route, request, origin, after, timeout), self._close)

    async def _adopt(
        self, route: Route[Any, Any], request: object, origin: StreamOrigin, after: int, timeout: float
    ) -> AskedStream:
        stream = AskedStream(
            origin.stream,
            trace.child(origin.stream),
            route,
            request,
            Terms(timeout, None, None),
            needed=_list_features(route, request),
            time=self._clock,
        )
        stream.attempt, stream.processor, stream.taken = origin.attempt + ADOPTED, origin.processor, after
        # Nobody else may be asked. No link of it is known yet that could be over.
        stream.relayed = stream.adopted = True
        stream.body, stream.link = b"", MAX_NUMBER
        if stream.call is not None:
            stream.call.pieces = after
        self._streams[stream.id] = stream
        self.admission.unanswered[route.request] += 1
        # From now on it can be found dead.
        self.presence.notice(origin.processor)
        self._controls.send(origin.processor, Adopt(stream.key, self._inbox.topic, after))
        return stream

    async def _open_planned(
        self, route: Route[Any, Any], request: object, terms: Terms, *, bounded: bool
    ) -> AskedStream:
        """Ask the first model of a route that takes the request."""
        needed = _list_features(route, request)
        run = self.routes.begin(route, needed, bounded=bounded)
        terms = terms._replace(run=run, fall_back=self._fall_back)
        stream: AskedStream | None = None
        try:
            while stream is None:
                try:
                    stream = await self._open(run.route, request, terms, bounded=bounded)
                except TgError as error:
                    if not run.go_on(error):
                        raise
        finally:
            if stream is None:
                run.leave()
        self._shadows.copy(stream, request, needed)
        return stream

    async def _open(self, route: Route[Any, Any], request: object, terms: Terms, *, bounded: bool) -> AskedStream:
        # Look up both once, and hand them on.
        needed, announced = _list_features(route, request), self.admission.find(route.request)
        if not route.plain:
            # Do not call `check`: each request passes here, and hardly any has to wait.
            if not announced.served or len(announced.models) > 1:
                announced = await self._find_first(route)
            announced.check(needed)
        if bounded:
            self.admission.check(route, announced)
        name = new_id()
        stream = AskedStream(name, trace.child(name), route, request, terms, needed=needed, time=self._clock)
        self._streams[stream.id] = stream
        # Before the publish, which waits: requests that come meanwhile are counted against this one.
        self.admission.unanswered[route.request] += 1
        published = False
        try:
            await self._ask(stream, announced)
            published = True
        finally:
            if not published:
                # What was not sent is no call.
                stream.call = None
                self._close(stream)
        return stream

    async def _read_plain(self, topic: str) -> None:
        """Read what plain peers answer there: an edit has added their flow."""
        async with self._opening_plain:
            if topic not in self._plain:
                each = self._subscriptions.each(topic, self._on_plain, Context())
                await self._exit.enter_async_context(each)
                self._plain.add(topic)

    def _close(self, stream: AskedStream) -> None:
        """The caller has left: stop the work, if it is not complete."""
        del self._streams[stream.id]
        if stream.fetched:
            self._starts.stop(stream.id)
        self.admission.unanswered[stream.route.request] -= 1
        if stream.left:
            self._left.append(stream.id)
            # Who adopts it sees all of its call.
            stream.call = None
        elif not stream.complete:
            self._cancel(stream)
        if stream.place is not None:
            stream.place_at(None)
        if stream.run is not None:
            stream.run.leave()
            self._shadows.end(stream)
        self._calls.close(stream)
        stream.close()

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

    async def _ask(self, stream: AskedStream, announced: Announced) -> None:
        if stream.route.plain and stream.route.response not in self._plain:
            await self._read_plain(stream.route.response)
        withheld = stream.permit is not None
        warm = stream.cache_key is not None and stream.attempt == 1 and not withheld
        if warm and await self._warm.ask(stream):
            return
        in_parts = not stream.route.plain and len(stream.body) <= announced.request_bytes
        if withheld and not in_parts:
            raise Unavailable("a processor of this queue is of a version that begins at once; upgrade it, or ask later")
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_SECONDS):
                try:
                    large = len(stream.body) > self.bus.max_message
                    await self._publish(stream, in_parts=in_parts and (large or withheld))
                except TooLarge:
                    # Only now may we learn that the broker's limit is lower.
                    if not in_parts:
                        raise
                    await self._publish(stream, in_parts=True)
        except TimeoutError:
            # The publish may still succeed later: the stream's cancel is then read by whichever processor takes it.
            raise BusError("the bus did not take the request in time; ask again") from None

    async def _publish(self, stream: AskedStream, *, in_parts: bool) -> None:
        properties = stream.headers(self._inbox.topic, in_parts=in_parts).properties
        await self.bus.publish(stream.route.request, b"" if in_parts else stream.body, properties)

    def stop(self, name: str) -> None:
        """Stop the work on a stream now, not only when its caller leaves; nothing if there is none."""
        if (stream := self._streams.get(name)) is not None and not stream.complete:
            self._cancel(stream)

    def _cancel(self, stream: AskedStream) -> None:
        if stream.left:
            return
        if stream.processor is not None:
            self._controls.cancel(stream.processor, stream.key)
        else:
            self._cancel_queued(stream)

    def _cancel_queued(self, stream: AskedStream) -> None:
        direct = stream.direct
        serving = self.presence.processors(stream.route.request) if direct is None else (direct,)
        self._controls.cancel_queued(serving, stream.key, max(stream.remaining, 0.0))

    def _abandon(self, stream: AskedStream, error: TgError) -> None:
        stream.fail(error)
        self._cancel(stream)

    def _lose(self, stream: AskedStream, error: TgError) -> None:
        """End what a stream's model does for it, with this error unless another model answers."""
        self._cancel(stream)
        if not self._fall_back(stream, error):
            stream.fail(error)

    def _fall_back(self, stream: AskedStream, error: TgError) -> bool:
        """Ask the next model of a stream's route instead of ending the stream; False = there is none."""
        run = stream.run
        if run is None or stream.begun or stream.failed or not self._find_next(run, error):
            return False
        failed, stream.route, stream.model, stream.deaths = stream.route, run.route, run.route.model, 0
        names = {"route": run.plan.name, "failed": failed.model, "following": run.route.model}
        log.warning("route.fallback", **stream.span.fields, **names, error=error.type)
        self.admission.unanswered[failed.request] -= 1
        self.admission.unanswered[run.route.request] += 1
        self._ask_queue(stream)
        return True

    def _find_next(self, run: RouteRun, error: TgError) -> bool:
        """Let a run go on to a model whose queue has room; whether there is one."""
        while run.go_on(error):
            with suppress(RateLimited):
                if run.bounded:
                    self.admission.check(run.route, self.admission.find(run.route.request))
                return True
            run.leave()
        return False

    def _on_frame(self, processor: str, link: int, frame: Frame) -> None:
        stream = self._streams.get(frame.stream)
        # The first processor whose frame of the current attempt arrives owns the stream. Cancel any other processor, so
        # that no answer is ever stitched from two; after a last frame there is nothing to stop.
        if stream is None or stream.attempt != frame.attempt or stream.processor not in (None, processor):
            if not (frame.last or frame.stream in self._left):
                self._controls.cancel(processor, StreamKey(frame.stream, frame.attempt))
            return
        # Only the first time: a processor repeats this, and by then a later request of the key may be elsewhere.
        if stream.processor is None and stream.cache_key is not None and frame.kind != "returned":
            self._warm.note_taken(stream, processor)
        stream.processor, stream.link = processor, link
        match frame.kind:
            case "record" | "end":
                if not stream.put(bytes(frame.record), last=frame.last) and not frame.last:
                    self._cancel(stream)
            case "accepted":
                stream.accept(opening=frame.opening)
            case "confirm":
                stream.fetching = False
                self._starts.confirm(stream, processor, frame.question)
            case "fetch":
                stream.fetching = True
                self._starts.fetch(stream, processor, frame.question)
            case "returned":
                self._on_returned(stream)

    def _on_returned(self, stream: AskedStream) -> None:
        """The processor has not begun, because its slots were taken meanwhile."""
        stream.note_returned()
        if stream.failed or stream.relayed:
            # Of what has begun, only an answer that we adopt is returned.
            stream.fail(_NOT_ADOPTED)
            return
        if stream.direct is not None:
            self._warm.note_returned(stream)
            self._ask_queue(stream)
        else:
            self._ask_elsewhere(stream)

    def _on_plain(self, delivery: Delivery) -> None:
        stream = self._streams.get(delivery.properties.get("id", ""))
        if stream is not None and stream.processor is None:
            stream.put_plain(delivery.body)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._timing.tick)
            self._controls.sweep()
            dead, lost = self._liveness.find_dead()
            # Drop a link only after its processor has closed it; otherwise a new epoch would begin.
            self._inbox.sweep(IDLE_LINK_SECONDS + self._timing.dead_after)
            self._calls.check(self._streams.values(), dead)
            self._check_all(dead, lost)

    def _check_all(self, dead: dict[str, tuple[Presence, ...]], lost: set[str]) -> None:
        # Do this outside the task itself: while it sleeps, its frame would keep the last stream and its request in
        # memory.
        for stream in [stream for stream in self._streams.values() if not stream.failed]:
            self._check(stream, dead, lost)

    async def _send_heartbeats(self) -> None:
        while True:
            # Do not sleep on the awake clock, on which only one task may sleep.
            await asyncio.sleep(self._timing.interval)
            self._liveness.send_heartbeats(self._streams.values())

    def _check(self, stream: AskedStream, dead: dict[str, tuple[Presence, ...]], lost: set[str]) -> None:
        """Retry a dead processor's stream elsewhere if nothing was relayed; fail it otherwise.

        The same holds for a stream on a link that its processor has closed, because it believed us dead.
        """
        processor = stream.processor
        if stream.adopted and stream.link == MAX_NUMBER and self._clock() > stream.asked_at + ADOPTION_SECONDS:
            stream.fail(_NOT_ADOPTED)
        elif processor in lost:
            self._lose(stream, BusError("a part of the answer was lost on the bus; ask again"))
        elif processor in dead:
            if not self._refuse_silenced(stream):
                self._give_up(stream, Unavailable("the processor died in the middle of the answer; ask again"))
        elif processor is not None and stream.link < self.presence.over_below(processor):
            self._give_up(stream, Unavailable("the processor lost contact with this process and stopped; ask again"))
        elif processor is None and stream.direct is not None:
            if self._warm.is_over(stream, dead, self._clock()):
                self._cancel_queued(stream)
                self._ask_queue(stream)
        elif processor is None and not stream.route.plain:
            self._check_queued(stream, dead)

    def _refuse_silenced(self, stream: AskedStream) -> bool:
        """Note that a processor fell silent while it had this request; True if it was the last one to get it.

        Such a request is kept for an operator, as a dead letter.
        """
        stream.silenced += 1
        if stream.begun or stream.silenced < MAX_SILENCED:
            return False
        reason = f"{stream.silenced} processors fell silent while they had this request, so no other one gets it"
        log.warning("stream.silenced", **stream.span.fields, attempt=stream.attempt, processor=stream.processor)
        start_task(self._asking, publish_dead_letter(self.bus, self.topics, stream.route.request, stream.body, reason))
        stream.fail(BadRequest(f"{reason}; change it, or ask the operator, who finds it among the dead letters"))
        return True

    def _give_up(self, stream: AskedStream, error: TgError) -> None:
        """Ask another processor if none may have begun and attempts are left; otherwise fail the stream."""
        stream.deaths += 1
        if stream.begun or stream.deaths >= MAX_ATTEMPTS:
            if not self._fall_back(stream, error):
                stream.fail(error)
        else:
            self._ask_elsewhere(stream)

    def _check_queued(self, stream: AskedStream, dead: dict[str, tuple[Presence, ...]]) -> None:
        """Publish a request again if it was probably taken by a processor that died or is partitioned."""
        if self.presence.is_unserved(stream.route.request):
            self._lose(stream, self._liveness.make_unserved_error(stream.route))
        elif self._liveness.is_lost(stream.route.request, stream.asked_at, dead):
            # A processor that takes the first copy later will find it cancelled.
            self._cancel_queued(stream)
            taken = self._liveness.is_taken(stream.route.request, stream.asked_at, dead)
            if taken:
                self._calls.lose(stream, dead)
            if not (taken and self._refuse_silenced(stream)):
                self._ask_elsewhere(stream)

    def _ask_elsewhere(self, stream: AskedStream) -> None:
        if self.presence.is_unserved(stream.route.request):
            self._lose(stream, self._liveness.make_unserved_error(stream.route))
            return
        log.warning("stream.attempt", **stream.span.fields, attempt=stream.attempt + 1, processor=stream.processor)
        ATTEMPTS.labels(stream.route.spec.name).inc()
        self._ask_queue(stream)

    def _ask_queue(self, stream: AskedStream) -> None:
        stream.begin_attempt()
        start_task(self._asking, self._ask_again(stream))

    async def _ask_again(self, stream: AskedStream) -> None:
        attempt = stream.attempt
        try:
            await self._ask(stream, self.admission.find(stream.route.request))
        except TgError as error:
            # The error may come late: when a processor answers all the same, or when a later attempt decides.
            if stream.attempt == attempt and stream.processor is None:
                self._lose(stream, error)


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
        if self._stream.span.began:
            self._stream.end_span(error)


def _list_features(route: Route[Any, Any], request: Any) -> frozenset[Feature]:
    """The features that a request needs."""
    return request.features if isinstance(request, EncodedRequest) else route.spec.features(request)
