"""Responses in the background -> topics on the bus -> the process that makes them: at once, or when there is capacity.

Such a response is in two places. Its log has its state; a message on a topic says that somebody must make it. The
message is acknowledged when the log has its end. So the response outlives the gateway that was asked, and only one
process asks a model: one that gets the message again finds in the log which one has taken it.

Processes of the part `jobs` make them. Where none lives, the gateways do: each what it is asked for at once, and any of
them what waits for capacity, after all other work.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import structlog

from tg_base.bus import Delivery
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Subscriptions
from tg_base.runtime import report, running, translate_defects
from tg_base.telemetry import POISON
from tg_gateway.access import Limits
from tg_gateway.dialects import Ask, Background, Catalogue, RecordedEnd, Waiting
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.job import QueuedJob
from tg_gateway.jobs.log import ALIVE, kind_of
from tg_gateway.jobs.queue_limits import ModelQueue, QueueBounds
from tg_gateway.jobs.runs import AttemptLost, JobRuns
from tg_gateway.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS
from tg_gateway.telemetry import BAND_MADE, AccessLogEntry
from tg_schema import TEXT_COMPLETION, TgError, decode, encode
from tg_schema.errors import BadRequest, Internal, NotFound, RateLimited, Unavailable

log = structlog.get_logger()

GROUP: Final = "tg-band"
ROOM_CHECK_SECONDS: Final = 0.1
"""Seconds between two checks for capacity, unless a response of the queue ends: processors announce themselves each
second."""
RETURNED_SECONDS: Final = 1.0
"""Seconds after which a message is taken again that this process could do nothing for."""
AT_ONCE: Final = Waiting(20.0)
"""How long a response may wait for a process of the part `jobs` to take it, and for its service to be asked."""
KNOWN_SECONDS: Final = 2.0
"""Seconds in which a first processor should announce itself, which provides the shared time. If none lives, our own
clock counts."""


class JobQueue:
    """Enter it to take responses. Drain it before the process's relay; leave it after.

    Args:
        requestor: knows which queues have capacity, and the processes of the part `jobs`.
        runs: make the responses.
        catalogue: the models.
        bounds: limits of waiting responses.
        longest_pause: the longest pause after a refusal, in seconds.
        most_paused: bytes of a model's messages that wait here after lost attempts; beyond that no more are taken.
        waits: whether responses may wait for capacity.
        apart: whether this is a process of the part `jobs`.

    Attributes:
        catalogue: as given; an edit of the file replaces it.
    """

    def __init__(
        self,
        requestor: Requestor,
        runs: JobRuns,
        catalogue: Catalogue,
        bounds: QueueBounds,
        *,
        longest_pause: float,
        most_paused: int,
        waits: bool,
        apart: bool = False,
    ) -> None:
        self._bus, self._topics = requestor.bus, requestor.topics
        self._requestor = requestor
        self._runs = runs
        self._logs = runs.store.logs
        self._clock = runs.store.logs.clock
        self.catalogue = catalogue
        self._apart = apart
        self._bounds = bounds
        # A flow that is bound to a route waits in the queue of its first model.
        completions = (each for each in catalogue.routes if each.spec.name == TEXT_COMPLETION.name)
        routes = [each for each in completions if waits and not (each.plain or each.plan)]
        topics = [(route, self._topics.flex_queue(route.request)) for route in routes]
        queues = [ModelQueue(route, topic, longest_pause, most_paused) for route, topic in topics]
        self._queues = {queue.route.request: queue for queue in queues}
        self._deliveries: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._making: set[asyncio.Task[Any] | None] = set()
        # Tasks that hold a message whose response is not being made here.
        self._idle: set[asyncio.Task[Any] | None] = set()

    @classmethod
    def of(
        cls,
        requestor: Requestor,
        runs: JobRuns,
        catalogue: Catalogue,
        limits: Limits,
        *,
        waits: bool,
        apart: bool = False,
    ) -> Self:
        """The queue of a process with these limits; other arguments as of the class."""
        bounds = QueueBounds(runs.store.logs, max_key=limits.waiting, max_all=limits.all_waiting)
        pause, most = limits.flex_pause, limits.paused_bytes
        return cls(requestor, runs, catalogue, bounds, longest_pause=pause, most_paused=most, waits=waits, apart=apart)

    async def __aenter__(self) -> Self:
        if self._apart or self._queues:
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
            if self._apart:
                for topic in map(self._topics.jobs, self.catalogue.flows):
                    messages = await stack.enter_async_context(subscriptions.open(topic, GROUP, prefetch=0))
                    await self._pumps.enter_async_context(running(self._pump_at_once(topic, messages)))
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
        async with self._publish(queue.topic, asked, background, entry, waiting) as undo:
            undo.callback(self._bounds.forget, name)
        queue.count("put")

    async def hand_over(self, asked: Ask, background: Background, entry: AccessLogEntry) -> None:
        """Let a process of the part `jobs` make the response; return once it has asked the service.

        Raises:
            Unavailable: none has taken it.
            TooLarge, BusError: as `put`.
            TgError: the process, or the service, has refused it.
        """
        self._logs.check_size(background.head)
        async with self._publish(self._topics.jobs(asked.route.flow), asked, background, entry, AT_ONCE):
            refused = await self._find_refusal(self._logs.owner(entry.key), background.name)
            if refused is not None:
                raise refused if asked.fields is None else asked.fields.translate(refused)
        self._logs.written.mark(background.name, waits=False)

    @asynccontextmanager
    async def _publish(
        self, topic: str, asked: Ask, background: Background, entry: AccessLogEntry, waiting: Waiting
    ) -> AsyncIterator[AsyncExitStack]:
        """Store the response and its message; erase them if the block fails, or what it pushes on the stack does."""
        async with AsyncExitStack() as undo:
            # Nobody could ever ask for it: its client left before it got the name, or is refused.
            undo.push_async_callback(self._logs.sweep, background.name)
            until = await self._runs.store.put(entry.key, background, waiting.seconds, waiting.attempts)
            await self._bus.publish(topic, encode(QueuedJob.of(asked, background, entry, until)), {})
            yield undo
            undo.pop_all()

    async def _find_refusal(self, owner: str, name: str) -> TgError | None:
        """Wait until the service was asked; why it was not."""
        log = await self._logs.load(owner, name)
        try:
            async with asyncio.timeout(AT_ONCE.seconds), aclosing(self._logs.watch(name, log.position)) as entries:
                async for entry in entries:
                    if entry is not None and kind_of(entry) == ALIVE:
                        return None
                    if entry is not None:
                        log.add(entry)
                    if log.outcome == "ended":
                        error = decode(RecordedEnd, log.answer.end).error
                        return None if error is None else TgError.of(error)
        except TimeoutError:
            pass
        return Unavailable("no process has begun the response; ask again", retry_after=1.0)

    def takes(self, asked: Ask) -> bool:
        """Whether an answer of this service can wait."""
        return asked.route.request in self._queues

    def is_made_apart(self, flow: str) -> bool:
        """Whether processes of the part `jobs` live that have this flow, and this is none."""
        return not self._apart and bool(self._requestor.presence.serving(self._topics.jobs(flow)))

    @property
    def in_flight(self) -> int:
        """How many responses this process has in hand."""
        return len(self._tasks)

    async def _pump_at_once(self, topic: str, messages: AsyncIterator[Delivery]) -> None:
        """Take one message after the other, as long as this process may make more."""
        async for delivery in messages:
            message = self._read(topic, delivery)
            if message is not None:
                known = message.name in self._deliveries
                self._deliveries[message.name] = delivery
                if not known:
                    self._start(self._take_at_once(message))
            await self._runs.until_room()

    def _read(self, topic: str, delivery: Delivery) -> QueuedJob | None:
        try:
            return decode(QueuedJob, delivery.body)
        except BadRequest:
            POISON.labels(topic).inc()
            delivery.ack()
            return None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="job")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report)

    async def _take_at_once(self, message: QueuedJob) -> None:
        ended = False
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "job.defect", log):
                ended = await self._make_at_once(message)
        except TgError as error:
            log.warning("job.failed", error=error.type)
        finally:
            delivery = self._deliveries.pop(message.name)
            if ended:
                delivery.ack()
            else:
                delivery.nack(RETURNED_SECONDS)

    async def _make_at_once(self, message: QueuedJob) -> bool:
        """Make one response, end it, or wait for the process that makes it. Return whether it has ended.

        Raises:
            BusError: the bus did not answer.
        """
        claim = Claim(self._logs, message.key, message.name)
        await claim.take(asks=True)
        if claim.running and not claim.mine:
            with self._waiting():
                return not await claim.outlast()
        if not claim.mine:
            return True
        with self._working():
            try:
                asked, background = message.restore(self.catalogue)
                return await self._runs.go_on(asked, background, message.make_entry(), claim)
            except TgError as error:
                await self._refuse(message, claim, error)
        return True

    async def _refuse(self, message: QueuedJob, claim: Claim, error: TgError) -> None:
        """End a response of which nothing was made, because of an error."""
        end = encode(RecordedEnd(int(self._clock()), error.record))
        await self._logs.declare(message.name, "ended", end, by=claim.own)

    async def _pump(self, queue: ModelQueue, messages: AsyncIterator[Delivery]) -> None:
        """Take one message after the other, each when there is capacity or when it has expired."""
        async for delivery in messages:
            if self.is_made_apart(queue.route.flow):
                delivery.nack()
                while self.is_made_apart(queue.route.flow):
                    await self._requestor.presence.wait(RETURNED_SECONDS)
                continue
            message = self._read(queue.topic, delivery)
            if message is None:
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
                self._start(self._take(queue, message))

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
                message.restore(self.catalogue)
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
        with queue.count_paused(message.key, len(message.request)), self._waiting():
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
            asked, background = message.restore(self.catalogue)
        except TgError as error:
            return await self._end_unmade(queue, message, claim, error)
        entry = message.make_entry()
        queue.asked.add(name)
        try:
            with self._working(), BAND_MADE.labels(queue.route.spec.name).track_inprogress():
                ended = await self._runs.go_on(asked, background, entry, claim, lambda: queue.starting.discard(name))
            if not ended:
                queue.asked.discard(name)
                return await self._outlast(queue, name, claim)
        except TgError as error:
            queue.asked.discard(name)
            if not error.retryable:
                await self._refuse(message, claim, error)
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
        queue.end()
        return True

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Inside the block this task makes a response."""
        task = asyncio.current_task()
        self._making.add(task)
        try:
            yield
        finally:
            self._making.discard(task)

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
