"""Name of an answer -> its log on the bus: created, written, read, followed, ended and erased.

Each answer is a log of its own, named after it, so there is no index that could disagree. Any gateway on the bus reads
it, also while another one writes it. Each gateway counts the bounds of a key only over what it wrote itself.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, Self

from tg_base.bus import Bus, Entry
from tg_base.client import Requestor
from tg_base.runtime import running
from tg_gateway.access import Limits
from tg_gateway.dialects import KEPT_SECONDS, MAX_KEPT_BYTES, Background
from tg_gateway.jobs.log import JobLog, erase_remnant, label_first
from tg_gateway.jobs.log_watch import SeenLogs
from tg_gateway.jobs.pauses import AttemptPauses
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.jobs.written import Written, WrittenLogs
from tg_schema.errors import BusError, NotFound, TooLarge
from tg_schema.topics import Topics

ALIVE_SHARE: Final = 3
"""An answer in the background shows a sign of life this many times within the silence that would count as its death."""
NOT_FOUND: Final = "nothing of this name is kept for this key: it never was, it has expired, or it was deleted"
_NAME: Final = re.compile(r"[\w-]{1,80}", re.ASCII)


class JobLogs:
    """The logs of one store's answers.

    Args:
        bus: has the logs.
        topics: their names.
        clock: seconds since 1970, the same for all gateways.
        scope: separates its answers from those of other stores on this bus.
        silence: seconds without an entry after which the writer of an answer in the background counts as dead.
        pauses: pauses after lost attempts at waiting answers.
        part_bytes: bytes of all parts of one answer that are kept.
        key_answers: answers that one gateway keeps for one key; beyond that the oldest are erased.
        key_bytes: the same in bytes.
        all_bytes: the same in bytes, for all keys: with the memory bus they are in this process.
        longest_run: seconds that making an answer may take. Its log is kept for this time longer.

    Attributes:
        bus: as given.
        clock: as given.
        silence: as given.
        pauses: as given.
        seen: the last entries seen in logs that are read now and then.
        written: what this gateway has written.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        clock: Callable[[], float] = time.time,
        *,
        scope: str = "",
        silence: float = 15.0,
        pauses: AttemptPauses | None = None,
        part_bytes: int = 8 * 1024 * 1024,
        key_answers: int = 1_000,
        key_bytes: int = 64 * 1024 * 1024,
        all_bytes: int = 512 * 1024 * 1024,
        longest_run: float = 0.0,
    ) -> None:
        self.bus = bus
        self.clock = clock
        self._topics = topics
        self._scope = scope
        self._part_bytes = part_bytes
        self._longest_run = longest_run
        self.silence = silence
        self.pauses = pauses or AttemptPauses(clock)
        self.seen = SeenLogs(silence, lambda: asyncio.get_running_loop().time())
        self.written = WrittenLogs(bus, topics, key_answers, key_bytes, all_bytes)

    @classmethod
    def of(cls, requestor: Requestor, limits: Limits, scope: str = "") -> Self:
        """The logs of a process with these limits."""
        clock = requestor.time
        return cls(
            requestor.bus,
            requestor.topics,
            clock,
            scope=scope,
            silence=limits.silence,
            pauses=AttemptPauses(clock, first=limits.attempt_pause),
            part_bytes=limits.part_bytes,
            longest_run=limits.run,
        )

    def owner(self, key: str | None) -> str:
        """A log's owner: the key's name within this store; requests without a key share one owner."""
        return f"{self._scope}{key or ''}"

    def topic(self, name: str) -> str:
        """The full name of an answer's log."""
        return self._topics.kept(name)

    @property
    def _limit(self) -> int:
        return min(MAX_KEPT_BYTES, self.bus.max_message)

    def check_size(self, body: bytes) -> None:
        """Check that a first entry is small enough to be kept.

        Raises:
            TooLarge: it cannot.
        """
        if len(body) > (limit := self._limit):
            raise TooLarge(f"an answer that is kept has at most {limit} bytes with its input; this one has {len(body)}")

    async def begin(
        self,
        owner: str,
        name: str,
        body: bytes,
        kind: str,
        *,
        claim: str = "",
        seconds: float = KEPT_SECONDS,
        waits: float | None = None,
        attempts: int = 1,
        over: str = "",
    ) -> Entry:
        """Append the first entry, as `label_first`; what was appended, without its body.

        The answer is readable for `seconds`, counted from `waits`.

        Raises:
            TooLarge: as `check_size`.
            BusError: the bus did not take it.
        """
        self.check_size(body)
        expires = (self.clock() if waits is None else waits) + seconds
        # Count it before the append: an append that seems to fail may still arrive.
        self.written.add(name, Written(owner, len(body), expires, waits is not None, claim, waits is not None))
        # Erase a few expired answers with each new one, so that no task is needed for it.
        await self.written.make_room(owner, self.clock())
        # While it is made, its log must not expire.
        last = expires if waits is None else expires + self._longest_run
        first = label_first(kind, owner, last, claim, waits, attempts=attempts, over=over)
        return Entry(b"", first, await self.bus.append(self.topic(name), body, first))

    @asynccontextmanager
    async def write(self, background: Background, log: JobLog) -> AsyncIterator[JobWriter]:
        """Go on with an answer in this state, as `JobWriter`, while the block runs. Raises BusError as `begin`."""
        async with self.bus.open_log(self.topic(background.name)) as out:
            writer = JobWriter(
                out,
                keeps_parts=background.keeps_parts,
                alive=self.silence / ALIVE_SHARE,
                limit=self._limit,
                part_bytes=self._part_bytes,
                parts=log.part_count,
                claim=log.claim,
                by=log.maker,
                clock=self.clock,
            )
            async with running(writer.run()):
                yield writer

    async def load(self, owner: str, name: str, head: bytes | None = None) -> JobLog:
        """What a log says now.

        Raises:
            NotFound: there is none, or it is another key's, has another head, or has expired.
            BusError: the bus did not answer.
        """
        # Check the name before it becomes part of a topic's name: anybody may have put it on the bus.
        if not _NAME.fullmatch(name):
            raise NotFound(NOT_FOUND)
        log = JobLog(await self.bus.read(self.topic(name)))
        # The same error as for a missing one: it must not reveal that another key's response exists.
        if log.owner != owner or head not in {None, log.answer.head}:
            raise NotFound(NOT_FOUND)
        # Not `<=`: "nan" reads as a number too.
        if not log.expires > self.clock():
            await self.written.erase(name)
            raise NotFound(NOT_FOUND)
        self.written.measure(name, log.size)
        return log

    async def watch(self, name: str, position: str) -> AsyncGenerator[Entry | None, None]:
        """The entries of an answer behind a position, until it is erased.

        None in place of an entry says that no entry has come for `silence` seconds.

        Raises:
            BusError: the bus did not answer, so there may be more entries.
        """
        topic = self.topic(name)
        while True:
            with suppress(TimeoutError):
                async with self.bus.follow(topic, position) as entries:
                    while True:
                        async with asyncio.timeout(self.silence):
                            entry = await anext(entries, None)
                        if entry is None:
                            return
                        position = entry.position
                        yield entry
            # Our own connection may be the silent one: open a new reader to find out.
            known = await self.bus.read(topic)
            if not known:
                return
            if known[-1].position == position:
                yield None

    async def follow(self, name: str, log: JobLog) -> AsyncGenerator[Entry | None, None]:
        """Add the entries of an answer to its state as they come, until it has an end or is erased.

        Yields each of them; None in place of one says that none has come for `silence` seconds. Raises BusError.
        """
        async with aclosing(self.watch(name, log.position)) as entries:
            async for entry in entries:
                if entry is not None:
                    log.add(entry)
                yield entry
                if log.outcome != "running":
                    return

    async def declare(self, name: str, end: Mapping[str, str], body: bytes = b"") -> None:
        """Append an end on behalf of a writer that does not answer, or never existed. Raises BusError."""
        # From now on it may be erased to make room for others.
        self.written.mark(name, waits=False)
        await self.note(name, end, body)

    async def end_lost(self, name: str, log: JobLog) -> bool:
        """End a response that has waited too long, or whose writer is lost; whether it has ended.

        A writer is lost if this process has seen no new entry of it for `silence` seconds. If another process may ask
        again, the response goes on.

        Raises:
            BusError: the bus did not answer.
        """
        lost = log.is_expired(self.clock())
        if log.outcome == "running" and not log.waiting and self.seen.is_silent(name, log.position):
            lost = not (log.repeatable and log.waits is not None and log.waits > self.clock())
        if lost:
            await self.declare(name, log.label_loss())
        return lost

    async def note(self, name: str, properties: Mapping[str, str], body: bytes = b"") -> None:
        """Append an entry to a log that was read; if the log was erased meanwhile, remove the entry.

        Raises:
            BusError: the bus did not take it, or cannot tell whether something stays.
        """
        topic = self.topic(name)
        await self.bus.append(topic, body, properties)
        await erase_remnant(self.bus, topic)

    async def sweep_remnant(self, name: str) -> None:
        """As `sweep`, if the log was erased, which its writer may not have seen."""
        with suppress(BusError):
            await erase_remnant(self.bus, self.topic(name))

    async def sweep(self, name: str) -> None:
        """Delete entries that arrived after the log was deleted; nothing else would ever clean them up."""
        with suppress(BusError):
            await self.written.erase(name)
