"""Message of a batch -> its lines, each a response that waits for capacity -> log of its results, line by line.

The message is acknowledged when the batch has ended. If a gateway dies, another one gets the message, and asks the
lines that have no result. Those that were asked before have their answers already, or soon.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import structlog

from tg_base.bus import Delivery
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Subscriptions
from tg_base.runtime import running, translate_defects
from tg_base.telemetry import new_id
from tg_gateway.access import Limits
from tg_gateway.dialects import Outcome, batches
from tg_gateway.jobs.batch_lines import BatchLines
from tg_gateway.jobs.batch_run import BatchRun
from tg_gateway.jobs.batch_store import BATCH_KEY, BATCH_NAME, KEY_BYTES, BatchEnd, KeyBatches, show_batch
from tg_gateway.jobs.log import JobLog, label_asked, label_end
from tg_gateway.jobs.log_watch import FollowerCount
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.relay import DEFECT_MESSAGE
from tg_schema import TgError, encode
from tg_schema.errors import BadRequest, Cancelled, Internal, NotFound, Unavailable

log = structlog.get_logger()

GROUP: Final = "tg-batches"
MAX_BATCHES: Final = 16
"""Batches that one gateway makes side by side."""
MAX_OF_KEY: Final = 4
"""Of these, for one key."""
MAX_LINES: Final = 16
"""Lines of a batch that are asked side by side."""
PAUSE_SECONDS, PAUSE_SHARE, MAX_PAUSE_SECONDS = 1.0, 0.1, 30.0
"""Seconds before a batch is begun again that could not be made, or is beyond its key's share: at least, as a share of
its age, at most."""


class BatchRuns:
    """The batches that this gateway makes.

    Args:
        requestor: has the bus.
        limits: of the logs.
        lines: asks them.
    """

    def __init__(self, requestor: Requestor, limits: Limits, lines: BatchLines) -> None:
        self._bus, self._topic = requestor.bus, requestor.topics.batches
        topics, clock = requestor.topics, requestor.time
        # They have bounds of their own.
        self._logs = JobLogs(self._bus, topics, clock, scope="batches ", silence=limits.silence)
        self._lines = lines
        self._shares = FollowerCount(MAX_OF_KEY, MAX_BATCHES)

    def of(self, key: str | None) -> KeyBatches:
        """The files and batches of this key."""
        return KeyBatches(self._logs, key, self._topic)

    @asynccontextmanager
    async def make(self) -> AsyncIterator[asyncio.Task[None]]:
        """Make batches until the block is left or the task is cancelled. Then other gateways go on with them.

        Raises:
            BusError: as `Subscriptions`.
        """
        async with (
            Subscriptions(self._bus, give_up=HeartbeatTiming().give_up) as subscriptions,
            subscriptions.open(self._topic, GROUP, prefetch=0) as messages,
            running(self._take_all(messages)) as making,
        ):
            yield making

    async def _take_all(self, messages: AsyncIterator[Delivery]) -> None:
        room = asyncio.Semaphore(MAX_BATCHES)
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                taken = group.create_task(self._take(await anext(messages)))
                taken.add_done_callback(lambda _: room.release())

    async def _take(self, delivery: Delivery) -> None:
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "batch.defect", log):
                name, key = delivery.properties.get(BATCH_NAME, ""), delivery.properties.get(BATCH_KEY)
                with self._shares.enter(key or ""):
                    await self._make(name, key)
        except (BadRequest, NotFound):
            # It was erased.
            delivery.ack()
        except TgError as error:
            log.warning("batch.returned", error=error.type)
            delivery.nack(min(max(PAUSE_SECONDS, delivery.age * PAUSE_SHARE), MAX_PAUSE_SECONDS))
        except asyncio.CancelledError:
            delivery.nack()
            raise
        else:
            delivery.ack()

    async def _make(self, name: str, key: str | None) -> None:
        """Make a batch, or the rest of it. If that fails, end it if its time is over or no retry can help.

        Raises:
            NotFound: it was erased.
            TgError: its message is to come again.
        """
        kept, own, logs = self.of(key), new_id(), self._logs
        before = await logs.load(kept.owner, name)
        if before.outcome != "running":
            return
        # From now on, what the gateway writes that made it before is void.
        await logs.note(name, label_asked(own, before.maker))
        state = await logs.load(kept.owner, name)
        number, batch = state.part_count, show_batch(name, state)
        try:
            outcome, counts = await self._finish(kept, batch.head, own, state, number)
        except TgError as error:
            over = batch.head.deadline <= logs.clock()
            if isinstance(error, NotFound) or not (over or isinstance(error, BadRequest)):
                raise
            log.warning("batch.given_up", error=error.type)
            outcome, counts = "expired" if over else "died", batch.counts
        await logs.note(name, label_end(outcome, by=own), encode(BatchEnd(int(logs.clock()), counts)))

    async def _finish(
        self, kept: KeyBatches, head: batches.Head, own: str, state: JobLog, number: int
    ) -> tuple[Outcome, batches.Counts]:
        """Get a result for each line that has none; how the batch ends. Raises TgError as `_make`."""
        logs = self._logs
        done = await kept.read_results(head.id)
        known = {each.custom_id: each.status for each in done}
        log_of, results_of = (logs.bus.open_log(logs.topic(each)) for each in (head.id, kept.name_results(head.id)))
        async with log_of as progress, results_of as results:
            size = sum(len(each.body) for each in done)
            run = BatchRun(head, kept.key, own, state, progress, results, known, number, size)
            try:
                found = await asyncio.to_thread(list, batches.read_lines(await kept.read(head.input)))
                lines = [line for _, line in found if isinstance(line, batches.Line)]
                outcome = await self._ask_all(run, [line for line in lines if line.custom_id not in known])
            except NotFound:
                # The file was deleted; or the batch, whose log then stays empty.
                lines, outcome = [], "died"
            for line in lines:
                if line.custom_id not in run.statuses:
                    await run.note(batches.Result(line.custom_id))
            if outcome != "ended":
                # A result may have arrived although its append was cancelled.
                run.statuses.update({each.custom_id: each.status for each in await kept.read_results(head.id)})
            await kept.list_with(head, run.size)
        for shared in run.asked:
            await self._lines.drop(shared)
        return outcome, run.counts

    async def _ask_all(self, run: BatchRun, lines: Sequence[batches.Line]) -> Outcome:
        """Ask all lines, until the batch is cancelled or its time is over. Raises TgError as `_make` and `_heed`."""
        try:
            async with asyncio.timeout(run.batch.deadline - self._logs.clock()), asyncio.TaskGroup() as group:
                heeding = group.create_task(self._heed(run))
                rest = iter(lines)
                await asyncio.wait([group.create_task(self._work(run, rest)) for _ in range(MAX_LINES)])
                heeding.cancel()
        except TimeoutError:
            return "expired"
        except ExceptionGroup as failures:
            if not isinstance(failures.exceptions[0], Cancelled):
                raise failures.exceptions[0] from None
            return "cancelled"
        return "too-large" if run.size > KEY_BYTES else "ended"

    async def _heed(self, run: BatchRun) -> None:
        """Follow the log, until it ends the making of the batch.

        Raises:
            Unavailable: another gateway makes it.
            Cancelled: its client has cancelled it.
            NotFound: it was erased.
        """
        async with aclosing(self._logs.follow(run.batch.id, run.state)) as entries:
            while True:
                if run.state.maker != run.own:
                    raise Unavailable("another gateway makes the batch")
                if run.state.cancelled:
                    raise Cancelled("the batch was cancelled")
                if await anext(entries, False) is False:
                    raise NotFound("the batch was erased")
                run.state.drop_bodies()

    async def _work(self, run: BatchRun, lines: Iterator[batches.Line]) -> None:
        """Ask one line after the other. All workers share the lines."""
        for line in lines:
            if run.size > KEY_BYTES:
                return
            shared = self._lines.name(run.batch, run.key, line)
            run.asked.append(shared)
            await run.note(await self._lines.ask(run.batch, line, shared))
            run.asked.remove(shared)
            await self._lines.drop(shared)
