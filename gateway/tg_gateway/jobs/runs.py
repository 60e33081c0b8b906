"""Message of a response -> the service -> log: what this process makes, within the limits of keys."""

import asyncio
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import Final

import structlog

from tg_base.runtime import running, translate_defects
from tg_base.telemetry import REFUSALS
from tg_gateway.access import Limits
from tg_gateway.jobs.log import QUEUED, is_late, label
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.run import PERMIT_SECONDS, JobRun
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.relay import DEFECT_MESSAGE, Exchange, Relay
from tg_schema import TgError
from tg_schema.errors import BusError, Internal, NotFound, RateLimited, Timeout, TooLarge, Unavailable

log = structlog.get_logger()

WATCH_AGAIN_SECONDS: Final = 1.0
"""Seconds before a log that could not be read is watched again."""
END_SEEN_SECONDS: Final = 5.0
"""Seconds that an end may take from the log back to its own writer."""


class AttemptLost(Unavailable):
    """The answering processor or server was lost. A model may have been asked, and another attempt may follow."""


class JobRuns:
    """The answers that this process makes.

    Args:
        relay: asks; its drain waits for these answers like for all others.
        logs: their logs.
        limits: how many are made side by side, for one owner and for all, where those that wait for capacity do not
            count; and how long each may take.

    Attributes:
        logs: as given.
        leaving: whether other processes go on with what this one makes.
    """

    def __init__(self, relay: Relay, logs: JobLogs, limits: Limits) -> None:
        self._relay = relay
        self.logs = logs
        self._limits = limits
        self._running: set[JobRun] = set()
        self.leaving = False

    @property
    def room(self) -> int:
        """How many more may be begun that do not wait for capacity."""
        return self._limits.all_background - len(self._list_begun())

    async def make(self, run: JobRun) -> bool:
        """Make a response whose head is stored, in this task; return when its end is stored.

        False: another process makes it, or is to make it, so our end does not count.

        Raises:
            RateLimited: too many run.
            TgError: no model worked on it, and it has no end yet. If the error is retryable, it may wait again.
            AttemptLost: as above, but a model may have been asked; it waits again, with one attempt used.
        """
        if not run.waits and (self.room <= 0 or self._list_begun().count(run.claim.owner) >= self._limits.background):
            raise refuse(run.asked.route.spec.name)
        self._running.add(run)
        try:
            if run.permit is None and run.claim.adopted is None:
                await run.claim.take()
            if run.permit is not None or run.claim.mine:
                await self._make(run)
        finally:
            self._running.discard(run)
            if run.opened.is_set():
                run.entry.write()
            if run.erased:
                await self.logs.sweep(run.background.name)
        # Nobody waits for the end of an erased response.
        return run.erased or not run.claim.running

    def _list_begun(self) -> list[str]:
        """The owner of each one that does not wait for capacity."""
        return [run.claim.owner for run in self._running if not run.waits]

    async def _make(self, run: JobRun) -> None:
        asked, claim, entry = run.asked, run.claim, run.entry
        entry.flow, entry.service = asked.route.flow, asked.route.spec.name
        failure = None
        async with AsyncExitStack() as stack:
            try:
                with translate_defects(Internal, DEFECT_MESSAGE, "gateway.defect", log):
                    # The log is opened while the request travels.
                    writer = run.writer = await stack.enter_async_context(claim.write(run.background))
                    async with self._ask(run) as exchange:
                        self._note_asked(run, exchange, writer)
                        # A response that waits again must not have said that work has begun.
                        if not run.waits:
                            exchange.responses.listen_accepted(partial(writer.send, b"", last=False))
                            await stack.enter_async_context(running(self._say_queued(run, writer)))
                        heeding = await stack.enter_async_context(running(self._heed(run)))
                        await self._relay_in_time(run, exchange)
            except TgError as error:
                if run.exchange is None:
                    raise
                entry.end(error.status, error.type)
                if not writer.begun and run.waits_again(error, told=exchange.responses.complete):
                    raise
                if writer.empty and run.is_repeatable(error):
                    raise AttemptLost(error.message) from error
                failure = error
            # Write the end only now that the model has stopped: readers may rely on that.
            if failure is None:
                entry.end(200, "ok")
            # Only the maker's end counts.
            await claim.until_decided(PERMIT_SECONDS * (not run.left))
            writer.by = claim.log.maker
            settled = claim.running and not (claim.lost or run.left or run.erased)
            if settled:
                # Its client has got nothing, and is asked to send the request again.
                retry = failure is not None and failure.retryable and not claim.log.cancelled
                writer.freed = bool(writer.claim) and retry and writer.empty
                settled = await writer.end(self._finish(run, writer, failure), "ended")
                # Free the place now, before we read the end ourselves: a client that read it may send its next request
                # at once.
                self._running.discard(run)
                # The watch sees the end, unless the log was erased before.
                await asyncio.wait([heeding], timeout=END_SEEN_SECONDS)
                settled = settled and heeding.done()
            if run.erased or not settled:
                # After another writer's end, for instance, the watch has stopped and would miss an erasure.
                await writer.settle()
        if not run.erased and not settled:
            await self.logs.sweep_remnant(run.background.name)

    def _note_asked(self, run: JobRun, exchange: Exchange, writer: JobWriter) -> None:
        run.exchange = exchange
        writer.source = run.stream
        run.opened.set()
        run.on_asked()
        if self.leaving:
            run.leave()

    def _finish(self, run: JobRun, writer: JobWriter, failure: TgError | None) -> bytes:
        """The body of the end. Only here it shows whether an answer is too large."""
        end = run.records.finish(self.logs.clock(), failure, cancelled=run.claim.log.cancelled)
        if failure is None and (run.records.failure is not None or len(end) > writer.limit):
            run.entry.end(TooLarge.status, TooLarge.type)
        return end

    def _ask(self, run: JobRun) -> Exchange:
        if run.claim.adopted is None:
            return self._relay.ask(run.asked, run.entry, run.permit, kept=run.permit is not None)
        origin, lines = run.claim.adopted
        run.records.restore(lines)
        return self._relay.adopt(run.asked, run.entry, origin, run.claim.log.taken)

    def leave(self) -> None:
        """Let other processes go on with what can be adopted: their models go on."""
        self.leaving = True
        for run in self._running:
            run.leave()

    async def _relay_in_time(self, run: JobRun, exchange: Exchange) -> None:
        late = Timeout(f"the response took longer than {self._limits.run:.0f} s")
        late.clock = "total"
        timer = asyncio.get_running_loop().call_later(self._limits.run, run.stop, late)
        try:
            if run.writer is not None and not run.records.complete:
                await exchange.relay(run.records, run.writer)
        finally:
            timer.cancel()

    async def _say_queued(self, run: JobRun, writer: JobWriter) -> None:
        """Tell the gateway, which waits for this note, that the response was not refused."""
        await writer.note(label(QUEUED))
        with suppress(BusError):
            try:
                await self.logs.load(run.claim.owner, run.background.name)
            except NotFound:
                # Its client has left.
                run.note_erased()

    async def _heed(self, run: JobRun) -> None:
        """Stop the model when a client cancels the answer, or when somebody else has ended or erased it."""
        while True:
            try:
                async with aclosing(self.logs.watch(run.background.name, run.claim.log.position)) as entries:
                    async for entry in entries:
                        if entry is None or (run.writer is not None and is_late(entry, run.writer.claim)):
                            continue
                        if run.note(entry):
                            return
                run.note_erased()
            except BusError:
                await asyncio.sleep(WATCH_AGAIN_SECONDS)
            else:
                return


def refuse(service: str) -> RateLimited:
    """The error for a response beyond the limits of what runs in the background; counts it."""
    REFUSALS.labels(service, "background").inc()
    return RateLimited("too many responses run in the background; wait for one to end", retry_after=1.0)
