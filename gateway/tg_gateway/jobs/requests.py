"""Ask -> head of a log, and a message on the bus: a gateway lets a response be made; from then on it only reads."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final

from tg_base.client import Requestor
from tg_base.telemetry import trace
from tg_gateway.access import Limits
from tg_gateway.dialects import Ask, Background, RecordedEnd, Waiting
from tg_gateway.jobs.job import QueuedJob
from tg_gateway.jobs.log import LEFT, QUEUED, JobLog, NameTaken, kind_of, label, label_end
from tg_gateway.jobs.queue import JobQueue
from tg_gateway.jobs.queue_bounds import QueueBounds
from tg_gateway.jobs.runs import refuse
from tg_gateway.jobs.store import JobStore
from tg_gateway.jobs.stream_list import StreamList
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError, decode, encode
from tg_schema.errors import Unavailable
from tg_schema.live import ListedStream

BEGIN_SECONDS: Final = 5.0
"""Seconds beyond the silence that tells a dead process in which a response that does not wait has to be begun."""


class JobRequests:
    """Lets responses be made, whichever process does it.

    Args:
        requestor: knows what processors can.
        queue: the queue of this process.
        store: has the responses.
        limits: bounds of waiting responses.
    """

    def __init__(self, requestor: Requestor, queue: JobQueue, store: JobStore, limits: Limits) -> None:
        self._requestor = requestor
        self._queue = queue
        self._limits = limits
        self.store = store
        self._bounds = QueueBounds(store.logs, limits)
        self._at_once = Waiting(limits.silence + BEGIN_SECONDS)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def put(self, asked: Ask, background: Background, entry: AccessLogEntry) -> JobLog | None:
        """Return its log, once the response waits on the bus for capacity, or once its service is asked.

        None: an earlier request has begun it, and this one joins it; no model is asked again. A caller that is
        cancelled meanwhile stops it, unless others may join it: nobody else knows its name yet.

        Raises:
            NameTaken: another request has begun one of that name, and this one does not join it.
            BadRequest, Unavailable: as `Requestor.check`; or no process has begun it.
            RateLimited: too many wait, or run.
            TooLarge, BusError: the bus did not take it.
            TgError: the process that makes it, or the service, has refused it.
        """
        logs = self.store.logs
        logs.check_size(background.head)
        if background.joins is not None:
            # It is made even if the client leaves.
            begun: JobLog | None = await asyncio.shield(self._start(self._put_chosen(asked, background, entry)))
            return begun
        async with AsyncExitStack() as undo:
            # Nobody could ever ask for it: its client left before it got the name, or is refused.
            undo.push_async_callback(logs.sweep, background.name)
            log = await self._put(asked, background, entry, undo)
            undo.pop_all()
        return log

    async def drop(self, name: str) -> None:
        """Erase a response, which counts no more among those that wait; if it is made, its model stops."""
        self._bounds.forget(name)
        await self.store.logs.sweep(name)

    def leave(self, name: str, claim: str) -> None:
        """Note soon that the first client of a response has gone."""
        self._start(self.store.logs.note(name, label(LEFT, claim=claim)))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The client may have left: then nobody needs the reason why it did not begin.
            task.exception()

    async def _put_chosen(
        self, asked: Ask, background: Background, entry: AccessLogEntry, over: str = ""
    ) -> JobLog | None:
        name, store = background.name, self.store
        try:
            over = over or await store.find_replaced(entry.key, name)
            return await self._put(asked, background, entry, AsyncExitStack(), over)
        except NameTaken:
            joins = background.joins and background.joins(await store.of(entry.key).read(name))
            if joins is None:
                ended = await store.logs.load(store.logs.owner(entry.key), name)
                return await self._put_chosen(asked, background, entry, ended.claim)
            if not joins:
                raise NameTaken(background.chosen) from None
            await self._publish_again(asked, background, entry)
            return None

    async def _publish_again(self, asked: Ask, background: Background, entry: AccessLogEntry) -> None:
        """Publish the message of a response that nobody has taken: its gateway may have died before it did so."""
        queue = None if background.waiting is None else self._queue.find_flex(asked)
        if queue is not None:
            logs = self.store.logs
            log = await logs.load(owner := logs.owner(entry.key), background.name)
            if log.waiting:
                # A second message does no harm: the log says who makes the response.
                again = QueuedJob.of(asked, background, entry, log.waits or 0.0, owner, waits=True)
                await logs.bus.publish(queue.topic, encode(again), {})

    async def _put(
        self, asked: Ask, background: Background, entry: AccessLogEntry, undo: AsyncExitStack, over: str = ""
    ) -> JobLog:
        waiting, name, flow = background.waiting, background.name, asked.route.flow
        queue = None if waiting is None else self._queue.find_flex(asked)
        if queue is None or waiting is None:
            # A gateway that may make none publishes it for others, though it knows none.
            if self._limits.all_background and not self._queue.has_room(flow):
                raise refuse(asked.route.spec.name)
            await self._queue.read(flow)
            log = await self._publish(
                asked, background, entry, self._at_once, self._requestor.topics.jobs(flow), over=over
            )
            refused = await self._find_refusal(name, log)
            if refused is not None:
                raise refused if asked.fields is None else asked.fields.translate(refused)
            self.store.logs.written.mark(name, waits=False)
            if background.listed:
                # The first token does not wait for it.
                listed = StreamList(self.store.logs, self.store.logs.owner(entry.key))
                self._start(listed.add(self._describe(asked, name), background.seconds))
        else:
            await self._requestor.check(asked.route, asked.request)
            await self._bounds.admit(entry.key, name, asked.route.spec.name)
            undo.callback(self._bounds.forget, name)
            log = await self._publish(asked, background, entry, waiting, queue.topic, over=over, waits=True)
            queue.count("put")
        return log

    def _describe(self, asked: Ask, name: str) -> ListedStream:
        route, model = asked.route, getattr(asked.request, "model", None)
        begun = round(self.store.logs.clock(), 3)
        return ListedStream(name, begun, route.flow, route.spec.name, model or route.model, trace.find_door())

    async def _publish(
        self,
        asked: Ask,
        background: Background,
        entry: AccessLogEntry,
        waiting: Waiting,
        topic: str,
        *,
        over: str,
        waits: bool = False,
    ) -> JobLog:
        logs = self.store.logs
        log = await self.store.put(entry.key, background, waiting, over)
        message = QueuedJob.of(asked, background, entry, log.waits or 0.0, logs.owner(entry.key), waits=waits)
        try:
            await logs.bus.publish(topic, encode(message), {})
        except TgError:
            if log.claim:
                await logs.declare(background.name, label_end("died", frees=True))
            raise
        return log

    async def _find_refusal(self, name: str, log: JobLog) -> TgError | None:
        """Wait until the service was asked; why it was not."""
        logs = self.store.logs
        with suppress(TimeoutError):
            async with asyncio.timeout(self._at_once.seconds), aclosing(logs.follow(name, log)) as entries:
                async for entry in entries:
                    if entry is not None and kind_of(entry) == QUEUED:
                        return None
        if log.outcome == "ended":
            error = decode(RecordedEnd, log.answer.end).error
            return None if error is None else TgError.of(error)
        return Unavailable("no process has begun the response; ask again", retry_after=1.0)
