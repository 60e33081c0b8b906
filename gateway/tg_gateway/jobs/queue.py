"""Topics on the bus -> the process that makes the responses: at once, or when there is capacity.

A message is acknowledged when the log of its response has an end. So a response outlives the process that makes it. Who
gets the message again finds in the log which process makes the response, and where. A message that cannot be seen to
now goes back to the broker for a while: none waits in this process, except the next one for capacity.

Processes of the part `jobs` make responses. If none of them has a flow, the gateways make those of the flow.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import structlog

from tg_base.bus import Delivery
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Subscriptions
from tg_base.runtime import is_set_within, start_task, translate_defects
from tg_base.telemetry import POISON
from tg_gateway.access import Limits
from tg_gateway.dialects import Ask, Catalogue, RecordedEnd
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.job import QueuedJob
from tg_gateway.jobs.log import label_end
from tg_gateway.jobs.queue_limits import ModelQueue
from tg_gateway.jobs.run import JobRun
from tg_gateway.jobs.runs import AttemptLost, JobRuns
from tg_gateway.relay import DEFECT_MESSAGE, DRAIN_ERROR_SECONDS
from tg_schema import TEXT_COMPLETION, TgError, decode, encode
from tg_schema.errors import BadRequest, Internal, NotFound, RateLimited

log = structlog.get_logger()

GROUP: Final = "tg-band"
ROOM_CHECK_SECONDS: Final = 0.1
"""Seconds between two checks for capacity, unless a response of the queue ends: processors announce themselves each
second."""
APART_CHECK_SECONDS: Final = 1.0
"""Seconds between two checks whether processes of the part `jobs` live."""
KNOWN_SECONDS: Final = 2.0
"""Seconds in which a first processor should announce itself, which provides the shared time. If none lives, our own
clock counts."""


class JobQueue:
    """Enter it to make responses. Drain it before the process's relay; leave it after.

    Args:
        requestor: knows which queues have capacity, and the processes of the part `jobs`.
        runs: make the responses.
        catalogue: the models.
        limits: bounds of what waits here.
        name: the name of this process of the part `jobs`; None = this is a gateway.
    """

    def __init__(
        self,
        requestor: Requestor,
        runs: JobRuns,
        catalogue: Catalogue,
        limits: Limits,
        *,
        name: str | None = None,
    ) -> None:
        self._bus, self._topics = requestor.bus, requestor.topics
        self._requestor = requestor
        self._runs = runs
        self._logs = runs.logs
        self._clock = runs.logs.clock
        self._catalogue = catalogue
        self._name = name
        self._make_queue = partial(ModelQueue, longest_pause=limits.flex_pause)
        self._queues: dict[str, ModelQueue] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._pumps: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subscriptions = Subscriptions(self._bus, give_up=HeartbeatTiming().give_up)
        self._entered = False

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._exit = stack
            await stack.enter_async_context(self._subscriptions)
            self._entered = True
            for queue in self._add_queues():
                await self._open(queue)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.drain()
        if self._tasks:
            # The relay has failed their requests. Let them log that, or readers would wait for the silence limit.
            await asyncio.wait(self._tasks, timeout=DRAIN_ERROR_SECONDS)
        await _cancel(self._tasks)
        # The broker sends unacknowledged messages to another process.
        await self._exit.aclose()

    async def drain(self) -> None:
        """Take no more messages, and return the ones that wait for capacity: here they would soon be cut off.

        Another process of the part `jobs` goes on with what is made here, or a gateway with what such a process makes.
        """
        await _cancel(self._pumps)
        # One that has just begun may not be known here yet; so a process of the part does not ask who lives.
        if self._name is not None or any(map(self._find_makers, self._catalogue.flows)):
            self._runs.leave()

    @property
    def catalogue(self) -> Catalogue:
        """The models. An edit of the file replaces them."""
        return self._catalogue

    @catalogue.setter
    def catalogue(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        for queue in self._add_queues() if self._entered else ():
            start_task(self._pumps, self._open(queue))

    def _add_queues(self) -> list[ModelQueue]:
        """The queues that are new in the catalogue."""
        new = [queue for flow in self._catalogue.flows for queue in self._add_flow(flow)]
        for route in self._catalogue.routes:
            topic = self._topics.flex_queue(route.request)
            # A flow that is bound to a route waits in the queue of its first model.
            own = route.spec.name == TEXT_COMPLETION.name and not (route.plain or route.plan)
            if own and topic not in self._queues:
                room = partial(self._requestor.admission.room, route.request)
                new.append(self._make_queue(topic, route.flow, room, service=route.spec.name))
                self._queues[topic] = new[-1]
        return new

    def _add_flow(self, flow: str) -> list[ModelQueue]:
        topic = self._topics.jobs(flow)
        if topic in self._queues:
            return []
        self._queues[topic] = self._make_queue(topic, flow, lambda: self._runs.room)
        return [self._queues[topic]]

    async def _open(self, queue: ModelQueue) -> None:
        # No prefetch: another process with capacity could not take the messages that this one holds.
        opening = self._subscriptions.open(queue.topic, GROUP, prefetch=0)
        start_task(self._pumps, self._pump(queue, await self._exit.enter_async_context(opening)), name="jobs")

    async def read(self, flow: str) -> None:
        """Make sure that somebody reads what is asked of this flow at once: processors announce some flows later."""
        for queue in self._add_flow(flow):
            await self._open(queue)

    def find_flex(self, asked: Ask) -> ModelQueue | None:
        """The queue of an answer that waits for capacity; None = those of this service do not."""
        return self._queues.get(self._topics.flex_queue(asked.route.request))

    def has_room(self, flow: str) -> bool:
        """Whether this process may begin what is asked of this flow at once, or others live that do."""
        return self._runs.room > 0 or self._find_makers(flow)

    def _find_makers(self, flow: str) -> bool:
        """Whether other processes of the part `jobs` live that have this flow."""
        makers = self._requestor.presence.serving(self._topics.jobs(flow))
        return any(each.processor != self._name for each in makers)

    @property
    def in_flight(self) -> int:
        """How many responses this process has in hand."""
        return len(self._tasks)

    async def _pump(self, queue: ModelQueue, messages: AsyncIterator[Delivery]) -> None:
        """Take one message after the other, each when there is capacity or when it has expired."""
        # Take nothing earlier: by a wrong clock, a message might seem to have expired.
        await self._requestor.time.until_known(KNOWN_SECONDS)
        while True:
            await self._until_free(queue)
            delivery = await anext(messages)
            if self._name is None and self._find_makers(queue.flow):
                delivery.nack()
            elif (message := self._decode(queue.topic, delivery)) is not None:
                await self._accept(queue, message, delivery)

    async def _until_free(self, queue: ModelQueue) -> None:
        """Wait until no process of the part `jobs` takes these messages, and there is room for one here."""
        while self._name is None and self._find_makers(queue.flow):
            await self._requestor.presence.wait(APART_CHECK_SECONDS)
        # What needs no capacity of a model needs room here: others may have it now.
        while queue.service is None and queue.find_room() <= len(queue.starting):
            await self._until_freed(queue)

    async def _accept(self, queue: ModelQueue, message: QueuedJob, delivery: Delivery) -> None:
        known = message.name in self._deliveries
        if not known and self._send_away(queue, message, delivery):
            return
        # After a lost connection the broker delivers again what is not acknowledged.
        self._deliveries[message.name] = delivery
        if not known:
            try:
                if not await self._is_made(queue, message):
                    await self._until_room(queue, message)
            except asyncio.CancelledError:
                self._deliveries.pop(message.name).nack()
                raise
            start_task(self._tasks, self._take(queue, message, delivery), name="job")

    def _decode(self, topic: str, delivery: Delivery) -> QueuedJob | None:
        try:
            return decode(QueuedJob, delivery.body)
        except BadRequest:
            POISON.labels(topic).inc()
            delivery.ack()
            return None

    async def _is_made(self, queue: ModelQueue, message: QueuedJob) -> bool:
        """Whether a model was asked for it, perhaps the one that has no room: who adopts it needs none."""
        with suppress(TgError):
            return queue.service is not None and bool((await self._logs.load(message.owner, message.name)).maker)
        return False

    def _send_away(self, queue: ModelQueue, message: QueuedJob, delivery: Delivery) -> bool:
        """Return a message for a while if its key is over its limits, so that other keys get their turn.

        Or if this process has no such model: others may have it, which read an edited file earlier or later.
        """
        pause = queue.measure_bar(message.key) if self._finds_model(message) else queue.longest_pause
        pause = min(pause, message.until - self._clock())
        return pause > 0 and queue.send_away(delivery, pause)

    def _finds_model(self, message: QueuedJob) -> bool:
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "job.defect", log):
                message.restore(self._catalogue)
        except TgError as error:
            return not isinstance(error, NotFound)
        return True

    async def _until_room(self, queue: ModelQueue, message: QueuedJob) -> None:
        """Wait until the model would begin a request at once, or until the time is over; then it counts as starting."""
        while self._clock() < message.until:
            if queue.is_open and queue.find_room() > len(queue.starting):
                break
            await self._until_freed(queue)
        queue.starting.add(message.name)

    async def _until_freed(self, queue: ModelQueue) -> None:
        queue.freed.clear()
        await is_set_within(queue.freed, ROOM_CHECK_SECONDS)

    async def _take(self, queue: ModelQueue, message: QueuedJob, delivery: Delivery) -> None:
        again: float | None = 0.0
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "job.defect", log):
                again = await self._see_to(queue, message)
        except TgError as error:
            log.warning("job.failed", topic=queue.topic, error=error.type)
            queue.pause(error.retry_after)
        finally:
            queue.free(message.name)
            newest = self._deliveries.pop(message.name)
            if again is None:
                delivery.ack()
            else:
                delivery.nack(again)
            if newest is not delivery:
                # It was delivered again, or a response that has replaced this one has its name.
                newest.nack()

    async def _see_to(self, queue: ModelQueue, message: QueuedJob) -> float | None:
        """Make one response, or end it. Return after how many seconds its message is to come again; None = it is over.

        Raises:
            BusError: the bus did not answer.
        """
        claim = Claim(self._logs, message.owner, message.name)
        await claim.load()
        if claim.lost and claim.log.origin is not None:
            # What makes it goes on for a while, also where the process that had asked is gone.
            await claim.take()
        if claim.lost:
            # The message came twice, or its process died, and nobody else can go on.
            await self._logs.end_lost(message.name, claim.log)
            return self._logs.silence
        if claim.log.maker:
            return await self._make(queue, message, claim) if claim.running else None
        if not claim.running:
            queue.count("dropped")
            return None
        if await self._logs.end_lost(message.name, claim.log):
            queue.count("expired")
            return None
        # After a lost attempt. The message comes again no later than its time is over.
        if pause := self._logs.pauses.measure(claim.log.resumes):
            return min(pause, message.until - self._clock())
        queue.count("taken")
        return await self._make(queue, message, claim)

    async def _make(self, queue: ModelQueue, message: QueuedJob, claim: Claim) -> float | None:
        """As `_see_to`."""
        name = message.name
        try:
            asked, background = message.restore(self._catalogue)
            starts = partial(queue.starting.discard, name)
            run = JobRun(asked, background, message.make_entry(), claim, starts, waits=message.waits)
            with queue.ask(name):
                ended = await self._runs.make(run)
        except AttemptLost:
            queue.count("again")
            return await claim.give_back(spent=True)
        except TgError as error:
            if self._runs.leaving:
                # The next process asks, or goes on where this one was about to.
                return await claim.give_back() if claim.adopted is None else 0.0
            if message.waits and (error.retryable or isinstance(error, NotFound)):
                queue.count("returned")
                # A limit of its key refused it before the service was asked: the model still has capacity for others.
                if isinstance(error, RateLimited) and name in queue.starting:
                    queue.bar(message.key, error.retry_after)
                else:
                    queue.pause(error.retry_after)
                return await claim.give_back()
            await self._refuse(message, claim, error)
            ended = True
        if not ended:
            return 0.0
        queue.end()
        return None

    async def _refuse(self, message: QueuedJob, claim: Claim, error: TgError) -> None:
        """End a response of which nothing was made, because of an error."""
        end, log_ = encode(RecordedEnd(int(self._clock()), error.record)), claim.log
        label = label_end("ended", claim=log_.claim, frees=bool(log_.claim), by=log_.maker)
        await self._logs.declare(message.name, label, end)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in set(tasks):
        task.cancel()
    if tasks:
        await asyncio.wait(set(tasks))
