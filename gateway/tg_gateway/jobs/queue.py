"""Waiting responses -> topic on the bus -> any gateway, when their model has capacity, after all other work.

A waiting response is in two places. Its log has its state, as for any response in the background; a message on the
topic of its flex queue says that a gateway must make it. The message is acknowledged when the log has its end. So a
waiting response outlives its gateway, and only one gateway asks a model: a gateway that gets the message again finds in
the log which one has taken it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog

from tg_base.bus import Delivery
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Subscriptions
from tg_base.runtime import report, running, translate_defects
from tg_base.telemetry import POISON, trace
from tg_gateway.dialects import Ask, Background, Call, Catalogue, Dialect, Waiting
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.queue_limits import ModelQueue, QueueBounds
from tg_gateway.jobs.record_writer import RecordWriter
from tg_gateway.jobs.runs import AttemptLost, JobRuns
from tg_gateway.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS
from tg_gateway.telemetry import BAND_MADE, AccessLogEntry
from tg_schema import TEXT_COMPLETION, TgError, decode, encode
from tg_schema.errors import BadRequest, Internal, NotFound, RateLimited

log = structlog.get_logger()

GROUP: Final = "tg-band"
ROOM_CHECK_SECONDS: Final = 0.1
"""Seconds between two checks for capacity, unless a response of the queue ends: processors announce themselves each
second."""
KNOWN_SECONDS: Final = 2.0
"""Seconds in which a first processor should announce itself, which provides the shared time. If none lives, our own
clock counts."""


class QueuedJob(msgspec.Struct, frozen=True):
    """The message of a waiting response: enough for any gateway to send the same request.

    Attributes:
        name: the name of the answer's log.
        until: when it expires, by the time of all requestors.
        dialect: the dialect and body of its `Waiting`.
        key: the name of the API key that asked.
        request: the id of the request.
        door: the name of the door by which it came; None = by none.
        traceparent: its trace context; None = it has none.
    """

    name: str
    until: float
    dialect: str
    body: msgspec.Raw
    key: str | None
    request: str
    door: str | None = None
    traceparent: str | None = None


class FlexQueue:
    """Enter it to take waiting responses. Drain it before the gateway's relay; leave it after.

    Args:
        requestor: knows which queues have capacity.
        runs: make the responses.
        catalogue: the models.
        dialects: by `Dialect.restarts`.
        bounds: limits of waiting responses.
        longest_pause: the longest pause after a refusal, in seconds.
        most_paused: bytes of a model's messages that wait here after lost attempts; beyond that no more are taken.

    Attributes:
        catalogue: as given; an edit of the file replaces it.
    """

    def __init__(
        self,
        requestor: Requestor,
        runs: JobRuns,
        catalogue: Catalogue,
        dialects: Mapping[str, Dialect],
        bounds: QueueBounds,
        *,
        longest_pause: float,
        most_paused: int,
    ) -> None:
        self._bus, self._topics = requestor.bus, requestor.topics
        self._requestor = requestor
        self._runs = runs
        self._logs = runs.store.logs
        self._clock = runs.store.logs.clock
        self.catalogue = catalogue
        self._dialects = dialects
        self._bounds = bounds
        # A flow that is bound to a route waits in the queue of its first model.
        completions = (each for each in catalogue.routes if each.spec.name == TEXT_COMPLETION.name)
        routes = [each for each in completions if not (each.plain or each.plan)]
        topics = [(route, self._topics.flex_queue(route.request)) for route in routes]
        queues = [ModelQueue(route, topic, longest_pause, most_paused) for route, topic in topics]
        self._queues = {queue.route.request: queue for queue in queues}
        self._deliveries: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._making: set[asyncio.Task[Any] | None] = set()
        # Tasks that hold a message whose response is not being made here.
        self._idle: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> Self:
        # Take nothing earlier: by a wrong clock, a message might seem to have expired.
        await self._requestor.time.until_known(KNOWN_SECONDS)
        async with AsyncExitStack() as stack:
            subscriptions = Subscriptions(self._bus, give_up=HeartbeatTiming().give_up)
            await stack.enter_async_context(subscriptions)
            opened = [
                # No prefetch: another gateway with capacity could not take the messages that this one holds.
                (queue, await stack.enter_async_context(subscriptions.open(queue.topic, GROUP, prefetch=0)))
                for queue in self._queues.values()
            ]
            self._pumps = await stack.enter_async_context(AsyncExitStack())
            for queue, messages in opened:
                await self._pumps.enter_async_context(running(self._pump(queue, messages)))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.drain()
        if making := self._tasks & self._making:
            # The relay has failed their requests. Let them log that, or readers would wait for the silence limit.
            await asyncio.wait(making, timeout=DRAIN_ERROR_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # The broker sends unacknowledged messages to another gateway.
        await self._exit.aclose()

    async def drain(self) -> None:
        """Take no more messages, and return those that wait here to other gateways: here they would soon be cut off."""
        await self._pumps.aclose()
        if idle := [task for task in self._tasks if task in self._idle]:
            for task in idle:
                task.cancel()
            await asyncio.wait(idle)

    async def put(self, asked: Ask, background: Background, waiting: Waiting, entry: AccessLogEntry) -> None:
        """Return once the response waits on the bus, so that it outlives this process.

        Raises:
            BadRequest, Unavailable: as `Requestor.check`.
            RateLimited: too many responses wait.
            TooLarge, BusError: the bus did not take it; it does not wait.
        """
        queue, name = self._queues[asked.route.request], background.name
        self._logs.check_size(background.head)
        await self._requestor.check(asked.route, asked.request)
        await self._bounds.admit(entry.key, name, waiting.seconds, queue.route.spec.name)
        async with AsyncExitStack() as undo:
            # Erase it: the client left before it got the name, so nobody could ever ask for it.
            undo.push_async_callback(self._logs.sweep, name)
            undo.callback(self._bounds.forget, name)
            until = await self._runs.store.put(entry.key, background, waiting.seconds, waiting.attempts)
            body = msgspec.Raw(waiting.body)
            span = trace.current()
            traceparent = None if span is None else span.traceparent
            message = QueuedJob(
                name, until, waiting.dialect, body, entry.key, entry.request, trace.find_door(), traceparent
            )
            await self._bus.publish(queue.topic, encode(message), {})
            undo.pop_all()
        queue.count("put")

    def takes(self, asked: Ask) -> bool:
        """Whether an answer of this service can wait."""
        return asked.route.request in self._queues

    async def _pump(self, queue: ModelQueue, messages: AsyncIterator[Delivery]) -> None:
        """Take one message after the other, each when there is capacity or when it has expired."""
        async for delivery in messages:
            try:
                message = decode(QueuedJob, delivery.body)
            except BadRequest:
                POISON.labels(queue.topic).inc()
                delivery.ack()
                continue
            known = message.name in self._deliveries
            if not known and self._send_away(queue, message, delivery):
                continue
            # After a lost connection the broker delivers again what is not acknowledged; only the newest can be.
            self._deliveries[message.name] = delivery
            if not known:
                try:
                    await self._until_room(queue, message)
                except asyncio.CancelledError:
                    self._deliveries.pop(message.name).nack()
                    raise
                task = asyncio.create_task(self._take(queue, message), name="band")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                task.add_done_callback(report)

    def _send_away(self, queue: ModelQueue, message: QueuedJob, delivery: Delivery) -> bool:
        """Return a message for a while if its key holds its share here, so that other keys get their turn.

        Or if this gateway has no such model: others may have it, which read an edited file earlier or later.
        """
        left = message.until - self._clock()
        unwanted = left > 0 and (queue.is_crowded(message.key) or not self._finds_model(message))
        return unwanted and queue.send_away(delivery, min(queue.longest_pause, left))

    def _finds_model(self, message: QueuedJob) -> bool:
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "band.defect", log):
                self._restart(message)
        except TgError as error:
            return not isinstance(error, NotFound)
        return True

    async def _until_room(self, queue: ModelQueue, message: QueuedJob, *, resumed: bool = False) -> None:
        """Wait until the model would begin a request at once and no other waits for it, or until the time is over.

        Then it counts among those that start. `resumed`: the message was taken before, and waits in this process.
        """
        while self._clock() < message.until:
            room = self._requestor.admission.room(queue.route.request) > len(queue.starting)
            if room and queue.is_open and (resumed or not queue.is_full):
                break
            queue.freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_CHECK_SECONDS):
                    await queue.freed.wait()
        queue.starting.add(message.name)

    async def _take(self, queue: ModelQueue, message: QueuedJob) -> None:
        ended = False
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "band.defect", log):
                ended = await self._see_to(queue, message)
        except TgError as error:
            log.warning("band.failed", topic=queue.topic, error=error.type)
            queue.pause(error.retry_after)
        finally:
            queue.starting.discard(message.name)
            queue.freed.set()
            delivery = self._deliveries.pop(message.name)
            if ended:
                self._bounds.forget(message.name)
                delivery.ack()
            else:
                delivery.nack()

    async def _see_to(self, queue: ModelQueue, message: QueuedJob) -> bool:
        """Make one response, end it, or wait for the gateway that makes it. Return whether it has ended.

        Raises:
            BusError: the bus did not answer.
        """
        name = message.name
        claim = Claim(self._logs, message.key, name)
        await claim.take()
        # A response that another gateway ended was counted there, even if its acknowledgement was lost.
        waited = claim.log.taker in {"", claim.own}
        if waited and (claim.log.again or claim.log.lost):
            queue.count("again")
        if not claim.running:
            if waited:
                queue.count("dropped")
            return True
        if not claim.mine:
            # The message came twice, or its gateway died after a model may have been asked.
            return await self._outlast(queue, name, claim)
        if self._clock() >= message.until:
            await self._logs.declare(name, claim.log.overdue, by=claim.own)
            queue.count("expired")
            return True
        queue.count("taken")
        if seconds := self._logs.pauses.measure(claim.log.resumes):
            await self._pause(queue, message, seconds)
            await claim.reload()
            if not claim.mine:
                return not claim.running or await self._outlast(queue, name, claim)
            if self._clock() >= message.until:
                await self._logs.declare(name, claim.log.overdue, by=claim.own)
                return True
        return await self._make(queue, message, claim)

    async def _pause(self, queue: ModelQueue, message: QueuedJob, seconds: float) -> None:
        """Let others start meanwhile; then wait for capacity again."""
        queue.starting.discard(message.name)
        queue.freed.set()
        with queue.count_paused(message.key, len(message.body)), self._waiting():
            await asyncio.sleep(max(min(seconds, message.until - self._clock()), 0.0))
            with suppress(TimeoutError):
                # Only one task checks for capacity, and the others queue up after it: thousands may be past their
                # pause.
                async with asyncio.timeout(max(message.until - self._clock(), 0.0)), queue.turn:
                    await self._until_room(queue, message, resumed=True)

    async def _outlast(self, queue: ModelQueue, name: str, claim: Claim) -> bool:
        queue.starting.discard(name)
        with self._waiting():
            return not await claim.outlast()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Inside the block this task only waits, so that another gateway may take over."""
        task = asyncio.current_task()
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    async def _make(self, queue: ModelQueue, message: QueuedJob, claim: Claim) -> bool:
        name = message.name
        try:
            asked, background = self._restart(message)
        except TgError as error:
            return await self._end_unmade(queue, message, claim, error)
        span = trace.Span.at_door(message.request, message.traceparent, message.door)
        trace.enter(span)
        entry = AccessLogEntry("background", message.request, message.traceparent, message.key, span=span)
        task = asyncio.current_task()
        self._making.add(task)
        queue.asked.add(name)
        try:
            with BAND_MADE.labels(queue.route.spec.name).track_inprogress():
                ended = await self._runs.go_on(asked, background, entry, claim, lambda: queue.starting.discard(name))
            if not ended:
                queue.asked.discard(name)
                return await self._outlast(queue, name, claim)
        except TgError as error:
            queue.asked.discard(name)
            if not error.retryable:
                end = RecordWriter(asked.route.spec.response, keeps_whole=False).finish(self._clock(), error)
                await self._logs.declare(name, "ended", end, by=claim.own)
                queue.end()
                return True
            if isinstance(error, AttemptLost):
                await claim.give_back(spent=True)
                return False
            await claim.give_back()
            queue.count("returned")
            # A limit of its key refused it before the service was asked: the model still has capacity for other keys.
            if isinstance(error, RateLimited) and name in queue.starting:
                queue.starting.discard(name)
                await queue.hold(message.key, error.retry_after)
            else:
                queue.pause(error.retry_after)
            return False
        finally:
            queue.asked.discard(name)
            self._making.discard(task)
        queue.end()
        return True

    async def _end_unmade(self, queue: ModelQueue, message: QueuedJob, claim: Claim, error: TgError) -> bool:
        """Return whether it has ended."""
        if isinstance(error, NotFound):
            # An edit came after its message was taken, or too many are returned already.
            await claim.give_back()
            queue.pause(None)
            return False
        log.warning("band.unreadable", topic=queue.topic, error=error.type)
        await self._logs.declare(message.name, "died", by=claim.own)
        return True

    def _restart(self, message: QueuedJob) -> tuple[Ask, Background]:
        """The ask again.

        Raises:
            TgError: this gateway cannot make it.
        """
        dialect = self._dialects.get(message.dialect)
        if dialect is None:
            raise BadRequest("no dialect of this gateway has this name")
        asked = dialect.restart(Call("", self.catalogue, {}, {}, {}, message.request, bytes(message.body)))
        if asked.background is None or asked.background.name != message.name:
            raise BadRequest("this is another answer")
        return asked, asked.background
