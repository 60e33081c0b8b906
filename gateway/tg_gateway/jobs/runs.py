"""Ask -> task of the gateway -> log: responses that are made apart from the connections that asked for them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from functools import partial
from typing import Final, Self

import structlog

from tg_base.bus import Entry
from tg_base.client import Requestor, ResponseStream
from tg_base.runtime import report, running, translate_defects
from tg_base.telemetry import REFUSALS, trace
from tg_gateway.access import Limits
from tg_gateway.dialects import Ask, Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.live_parts import LiveParts
from tg_gateway.jobs.log import ALIVE, CANCEL, END, NameTaken, is_late, kind_of, label
from tg_gateway.jobs.logs import JobLogs
from tg_gateway.jobs.pauses import AttemptPauses
from tg_gateway.jobs.run import JobRun
from tg_gateway.jobs.store import JobStore
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.relay import DEFECT_MESSAGE, Exchange, Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BusError, Cancelled, Internal, NotFound, RateLimited, Timeout, TooLarge, Unavailable

log = structlog.get_logger()

WATCH_AGAIN_SECONDS: Final = 1.0
"""Seconds before a log that could not be read is watched again."""
END_SEEN_SECONDS: Final = 5.0
"""Seconds that an end may take from the log back to its own writer."""


class AttemptLost(Unavailable):
    """The answering processor or server was lost. A model may have been asked, and another attempt may follow."""


class JobRuns:
    """The answers that this gateway makes in the background.

    Args:
        relay: asks; its drain waits for these answers like for all others.
        store: keeps them.
        max_running: side by side, of one key.
        max_all: side by side, of all keys.
        longest_run: seconds that one may take.

    Attributes:
        store: what keeps them.
    """

    def __init__(self, relay: Relay, store: JobStore, *, max_running: int, max_all: int, longest_run: float) -> None:
        self._relay = relay
        self.store = store
        self._max_running = max_running
        self._max_all = max_all
        self._longest_run = longest_run
        self._keys: Counter[str | None] = Counter()
        self._freed = asyncio.Event()
        self._adoptable: dict[JobRun, Exchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._chosen: dict[str, tuple[JobRun, asyncio.Task[None]]] = {}

    @classmethod
    def of(cls, requestor: Requestor, relay: Relay, limits: Limits, scope: str = "") -> Self:
        """Those of a process with these limits; `scope` is that of its `JobLogs`."""
        logs = JobLogs(
            requestor.bus,
            requestor.topics,
            requestor.time,
            scope=scope,
            silence=limits.silence,
            pauses=AttemptPauses(requestor.time, first=limits.attempt_pause),
            part_bytes=limits.part_bytes,
        )
        store = JobStore(logs, max_followers=limits.followers, max_all_followers=limits.all_followers)
        return cls(relay, store, max_running=limits.background, max_all=limits.all_background, longest_run=limits.run)

    async def start(
        self, asked: Ask, background: Background, entry: AccessLogEntry, live: LiveParts | None = None
    ) -> None:
        """Return once the service is asked and the head is kept.

        A caller that is cancelled meanwhile stops it, unless its name is chosen: nobody else knows it yet.

        Args:
            asked: what is asked.
            background: how the answer is kept.
            entry: the request's line in the log.
            live: gets the parts as they are made.

        Raises:
            NameTaken: its name is chosen, and an answer of that name is kept.
            RateLimited: too many run.
            TgError: as `Relay.ask` and `JobStore.keep`.
        """
        while (other := self._chosen.get(background.name)) is not None:
            await _check_begun(*other)
        self.store.logs.check_size(background.head)
        if self._is_full(entry.key) and background.chosen:
            # The same request may have begun it elsewhere. Reading that response takes none of our capacity.
            await self.store.check_free(entry.key, background.name)
        self._count_in(asked, entry.key)
        own = AccessLogEntry("background", entry.request, entry.traceparent, entry.key, span=trace.below())
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opening = partial(self.store.open, entry.key, background, live)
        run = JobRun(asked, background, own, begun, opening, live)
        task = asyncio.create_task(self._run(run))
        self._tasks.add(task)
        if background.chosen:
            self._chosen[background.name] = run, task
            task.add_done_callback(lambda _: self._chosen.pop(background.name, None))
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._count_out(run))
        task.add_done_callback(report)
        try:
            await asyncio.wait([begun, task], return_when=asyncio.FIRST_COMPLETED)
        # The client left before it got the name, so nobody could ever ask for this response.
        except asyncio.CancelledError:
            if background.chosen:
                # The client left: nobody needs the reason why it did not begin.
                begun.add_done_callback(asyncio.Future.exception)
            else:
                run.abandoned = True
                task.cancel()
            raise
        if begun.done():
            begun.result()
        else:
            raise Internal(DEFECT_MESSAGE)

    async def start_or_join(self, asked: Ask, background: Background, entry: AccessLogEntry, live: LiveParts) -> bool:
        """As `start`. False: the same request began it before under the chosen name; no model is asked again.

        Raises:
            NameTaken: another request has begun it.
            TgError: as `start`.
        """
        try:
            await self.start(asked, background, entry, live)
        except NameTaken:
            if (await self.store.of(entry.key).read(background.name)).head != background.head:
                raise NameTaken(background.chosen) from None
            return False
        return True

    async def go_on(
        self,
        asked: Ask,
        background: Background,
        entry: AccessLogEntry,
        claim: Claim,
        on_asked: Callable[[], None] | None = None,
    ) -> bool:
        """Make a response whose head was stored before, in this task; return when its end is stored.

        False: the log has given it to another gateway, so our end does not count.

        Args:
            asked: what is asked.
            background: how the answer is kept.
            entry: its line in the log.
            claim: this process's.
            on_asked: called once the service is asked; None = it does not wait for capacity, and counts like those that
                `start` begins.

        Raises:
            RateLimited: too many run.
            TgError: no model worked on it, and it has no end yet. If the error is retryable, it may wait again.
            AttemptLost: as above, but a model may have been asked; it waits again, with one attempt used.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opening = partial(claim.write, background)
        waits = on_asked is not None
        if on_asked is None:
            self._count_in(asked, entry.key)
        else:
            begun.add_done_callback(lambda _: on_asked())
        run = JobRun(asked, background, entry, begun, opening, claim=claim, waits=waits, counted=not waits)
        try:
            await self._make(run)
        finally:
            self._count_out(run)
            if begun.done():
                entry.write()
            if run.erased:
                await self.store.logs.sweep(background.name)
        # Nobody waits for the end of an erased response.
        return run.erased or not claim.running

    async def until_room(self) -> None:
        """Return when one more may be begun, of any key."""
        while self._keys.total() >= self._max_all:
            self._freed.clear()
            await self._freed.wait()

    def _is_full(self, key: str | None) -> bool:
        return self._keys[key] >= self._max_running or self._keys.total() >= self._max_all

    def _count_in(self, asked: Ask, key: str | None) -> None:
        if self._is_full(key):
            REFUSALS.labels(asked.route.spec.name, "background").inc()
            raise RateLimited("too many responses run in the background; wait for one to end", retry_after=1.0)
        self._keys[key] += 1

    def _count_out(self, run: JobRun) -> None:
        if run.counted:
            run.counted = False
            self._freed.set()
            self._keys -= Counter([run.entry.key])

    async def close(self, seconds: float) -> None:
        """Give responses that are ending this long, and stop the others without writing an end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, run: JobRun) -> None:
        if run.entry.span is not None:
            # The client's request ends before the response that it began.
            trace.enter(run.entry.span)
        try:
            if run.background.chosen:
                await self.store.check_free(run.entry.key, run.background.name)
            await self._make(run)
        except TgError as error:
            # The client gets the error itself; the response is not in the background yet.
            run.begun.set_exception(error)
        finally:
            if run.live is not None:
                run.live.close()
            if run.begun.done() and run.begun.exception() is None:
                run.entry.write()
            if run.erased or run.abandoned:
                await self.store.logs.sweep(run.background.name)

    async def _make(self, run: JobRun) -> None:
        asked, background, entry, begun = run.asked, run.background, run.entry, run.begun
        entry.flow, entry.service = asked.route.flow, asked.route.spec.name
        failure = None
        async with AsyncExitStack() as stack:
            try:
                with translate_defects(Internal, DEFECT_MESSAGE, "gateway.defect", log):
                    async with self._ask(run) as exchange:
                        writer, position = await stack.enter_async_context(run.opening())
                        run.writer = writer
                        stack.enter_context(self._let_adopt(run, exchange, writer))
                        begun.set_result(None)
                        # A response that waits again must not have said that work has begun.
                        if not run.waits:
                            begin = partial(_begin, asked, writer)
                            exchange.responses.listen_accepted(begin, asked.on_opening)
                        heed = self._heed(run, position, exchange)
                        heeding = await stack.enter_async_context(running(heed))
                        await self._relay_in_time(run, exchange, writer)
            except TgError as error:
                if not begun.done():
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
            settled = not (run.over or run.lost or run.left)
            if settled:
                # Its client has got nothing, and is asked to send the request again.
                retry = failure is not None and failure.retryable and not run.cancelled
                writer.freed = bool(background.chosen) and retry and writer.empty
                settled = await writer.end(self._finish(run, writer, failure), "ended")
                # Free the place now, before we read the end ourselves: a client that read it may send its next request
                # at once.
                self._count_out(run)
                # The watch sees the end, unless the log was erased before.
                await asyncio.wait([heeding], timeout=END_SEEN_SECONDS)
                settled = settled and heeding.done()
            if run.erased or not settled:
                # After another writer's end, for instance, the watch has stopped and would miss an erasure.
                await writer.settle()
        if not run.erased and not settled:
            await self.store.logs.sweep_remnant(background.name)

    def _finish(self, run: JobRun, writer: JobWriter, failure: TgError | None) -> bytes:
        """The body of the end. Only now an answer may be found too large."""
        end = run.records.finish(self.store.logs.clock(), failure, cancelled=run.cancelled)
        if failure is None and (run.records.failure is not None or len(end) > writer.limit):
            run.entry.end(TooLarge.status, TooLarge.type)
        return end

    def _ask(self, run: JobRun) -> Exchange:
        claim = run.claim
        if claim is None or claim.adopted is None or claim.log.origin is None:
            return self._relay.ask(run.asked, run.entry, run.permit, kept=claim is not None and not run.waits)
        run.records.restore(claim.adopted)
        return self._relay.adopt(run.asked, run.entry, claim.log.origin, claim.log.taken)

    @contextmanager
    def _let_adopt(self, run: JobRun, exchange: Exchange, writer: JobWriter) -> Iterator[None]:
        """Other processes may go on with what has a message, as the log says."""
        if run.claim is not None and not run.waits and isinstance(exchange.responses, ResponseStream):
            writer.source = exchange.responses
            self._adoptable[run] = exchange
        try:
            yield
        finally:
            self._adoptable.pop(run, None)

    def leave(self) -> None:
        """Let other processes go on with what can be adopted: their models go on."""
        for run, exchange in self._adoptable.items():
            if run.writer is not None and run.writer.told_begun and isinstance(exchange.responses, ResponseStream):
                run.left = exchange.responses.left = True
                exchange.responses.fail(Unavailable("another process goes on with the response"))

    async def _relay_in_time(self, run: JobRun, exchange: Exchange, writer: JobWriter) -> None:
        timer = asyncio.get_running_loop().call_later(self._longest_run, self._end_late, run, exchange)
        try:
            if not run.records.complete:
                await exchange.relay(run.records, writer)
        finally:
            timer.cancel()

    def _end_late(self, run: JobRun, exchange: Exchange) -> None:
        run.overran = True
        exchange.responses.fail(Timeout(f"the response took longer than {self._longest_run:.0f} s"))

    async def _say_asked(self, run: JobRun, exchange: Exchange) -> None:
        """Say to the gateway that waits for it that the response was not refused."""
        with suppress(BusError):
            await self.store.logs.bus.append(self.store.logs.topic(run.background.name), b"", label(ALIVE))
            try:
                await self.store.logs.load(self.store.logs.owner(run.entry.key), run.background.name)
            except NotFound:
                # Its client has left.
                _note_erased(run, exchange)

    async def _heed(self, run: JobRun, position: str, exchange: Exchange) -> None:
        """Stop the model when a client cancels the answer, or when somebody else has ended or erased it."""
        if run.claim is not None and not run.waits:
            await self._say_asked(run, exchange)
        while True:
            try:
                async with aclosing(self.store.logs.watch(run.background.name, position)) as entries:
                    async for entry in entries:
                        if entry is None or (run.writer is not None and is_late(entry, run.writer.claim)):
                            continue
                        position = entry.position
                        if _note_entry(run, entry, exchange):
                            return
                _note_erased(run, exchange)
            except BusError:
                await asyncio.sleep(WATCH_AGAIN_SECONDS)
            else:
                return


def _note_erased(run: JobRun, exchange: Exchange) -> None:
    run.over = run.erased = True
    exchange.responses.fail(Cancelled("the response was deleted"))


def _note_entry(run: JobRun, entry: Entry, exchange: Exchange) -> bool:
    """Take an entry of the response's log, which may stop the model; returns whether later entries are irrelevant."""
    kind = kind_of(entry)
    if run.claim is not None:
        run.claim.note(entry)
    if run.lost:
        if run.writer is not None and run.writer.source is not None:
            # Who has it now goes on with our model.
            run.left = run.writer.source.left = True
        exchange.responses.fail(Cancelled("another gateway makes the response"))
        return True
    if kind == END and run.claim is not None and run.claim.running:
        # The entry comes from a gateway declared dead that does not know it yet.
        return False
    if kind in {CANCEL, END}:
        run.cancelled = run.cancelled or kind == CANCEL
        run.over = kind == END
        exchange.responses.fail(Cancelled("the response was cancelled"))
    return kind == END


async def _check_begun(run: JobRun, task: asyncio.Task[None]) -> None:
    """Wait until a response with a chosen name has begun, or has failed and freed the name.

    Raises:
        NameTaken: it has begun.
    """
    await asyncio.wait([run.begun, task], return_when=asyncio.FIRST_COMPLETED)
    freed = run.writer is not None and run.writer.freed
    if run.begun.done() and run.begun.exception() is None and not freed:
        raise NameTaken
    # The name is free when the task has ended.
    await asyncio.wait([task])


def _begin(asked: Ask, writer: JobWriter) -> None:
    """A processor works on the answer."""
    if asked.on_accepted is not None:
        asked.on_accepted()
    writer.send(b"", last=False)
