"""Ask -> head of a log, and a message on the bus: a gateway lets a response be made; from then on it only reads."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Final

from tg_base.client import Requestor
from tg_gateway.access import Limits
from tg_gateway.dialects import Ask, Background, RecordedEnd, Waiting
from tg_gateway.jobs.job import QueuedJob
from tg_gateway.jobs.log import QUEUED, JobLog, NameTaken, kind_of, label_end
from tg_gateway.jobs.queue import JobQueue
from tg_gateway.jobs.queue_bounds import QueueBounds
from tg_gateway.jobs.runs import refuse
from tg_gateway.jobs.store import JobStore
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError, decode, encode
from tg_schema.errors import Unavailable

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
        self._bounds = QueueBounds(store.logs, max_key=limits.waiting, max_all=limits.all_waiting)
        self._at_once = Waiting(limits.silence + BEGIN_SECONDS)
        self._tasks: set[asyncio.Task[JobLog | None]] = set()

    async def put(self, asked: Ask, background: Background, entry: AccessLogEntry) -> JobLog | None:
        """Return its log, once the response waits on the bus for capacity, or once its service is asked.

        None: the same request began it before under the chosen name; no model is asked again. A caller that is
        cancelled meanwhile stops it, unless its name is chosen: nobody else knows it yet.

        Raises:
            NameTaken: another request has begun one of that name.
            BadRequest, Unavailable: as `Requestor.check`; or no process has begun it.
            RateLimited: too many wait, or run.
            TooLarge, BusError: the bus did not take it.
            TgError: the process that makes it, or the service, has refused it.
        """
        logs = self.store.logs
        logs.check_size(background.head)
        if background.chosen:
            # It is made even if the client leaves.
            task = asyncio.create_task(self._put_chosen(asked, background, entry))
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            return await asyncio.shield(task)
        async with AsyncExitStack() as undo:
            # Nobody could ever ask for it: its client left before it got the name, or is refused.
            undo.push_async_callback(logs.sweep, background.name)
            log = await self._put(asked, background, entry, undo)
            undo.pop_all()
        return log

    def _forget(self, task: asyncio.Task[JobLog | None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The client may have left: then nobody needs the reason why it did not begin.
            task.exception()

    async def _put_chosen(self, asked: Ask, background: Background, entry: AccessLogEntry) -> JobLog | None:
        name = background.name
        try:
            return await self._put(asked, background, entry, AsyncExitStack())
        except NameTaken:
            if (await self.store.of(entry.key).read(name)).head != background.head:
                raise NameTaken(background.chosen) from None
            return None

    async def _put(self, asked: Ask, background: Background, entry: AccessLogEntry, undo: AsyncExitStack) -> JobLog:
        waiting, name, flow = background.waiting, background.name, asked.route.flow
        queue = None if waiting is None else self._queue.find_flex(asked)
        if queue is None or waiting is None:
            # A gateway that makes none leaves it to others, without knowing them.
            if self._limits.all_background and not self._queue.has_room(flow):
                raise refuse(asked.route.spec.name)
            await self._queue.read(flow)
            log = await self._publish(asked, background, entry, self._at_once, self._requestor.topics.jobs(flow))
            refused = await self._find_refusal(name, log)
            if refused is not None:
                raise refused if asked.fields is None else asked.fields.translate(refused)
            self.store.logs.written.mark(name, waits=False)
        else:
            await self._requestor.check(asked.route, asked.request)
            await self._bounds.admit(entry.key, name, waiting.seconds, asked.route.spec.name)
            undo.callback(self._bounds.forget, name)
            log = await self._publish(asked, background, entry, waiting, queue.topic, waits=True)
            queue.count("put")
        return log

    async def _publish(
        self,
        asked: Ask,
        background: Background,
        entry: AccessLogEntry,
        waiting: Waiting,
        topic: str,
        *,
        waits: bool = False,
    ) -> JobLog:
        logs = self.store.logs
        log = await self.store.put(entry.key, background, waiting)
        message = QueuedJob.of(asked, background, entry, log.waits or 0.0, logs.owner(entry.key), waits=waits)
        try:
            await logs.bus.publish(topic, encode(message), {})
        except TgError:
            if background.chosen:
                await logs.declare(background.name, label_end("died", frees=True))
            raise
        return log

    async def _find_refusal(self, name: str, log: JobLog) -> TgError | None:
        """Wait until the service was asked; why it was not."""
        logs = self.store.logs
        try:
            async with (
                asyncio.timeout(self._at_once.seconds),
                aclosing(logs.watch(name, log.position)) as entries,
            ):
                async for entry in entries:
                    if entry is not None:
                        log.add(entry)
                    if entry is not None and kind_of(entry) == QUEUED:
                        return None
                    if log.outcome == "ended":
                        error = decode(RecordedEnd, log.answer.end).error
                        return None if error is None else TgError.of(error)
                    if log.outcome != "running":
                        break
        except TimeoutError:
            pass
        return Unavailable("no process has begun the response; ask again", retry_after=1.0)
