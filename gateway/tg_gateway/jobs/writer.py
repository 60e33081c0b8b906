"""Relay -> log: the parts of one answer while it is made; without parts, signs of life."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from typing_extensions import override

from tg_base.bus import LogWriter
from tg_base.client import ResponseStream
from tg_gateway.dialects import Outcome, Output, join_output
from tg_gateway.jobs.log import ALIVE, BEGUN, label, label_end, label_part
from tg_gateway.relay import Sink
from tg_schema.errors import BusError, TooLarge

log = structlog.get_logger()

MAX_BATCH_BYTES: Final = 64 * 1024
BATCH_SECONDS: Final = 0.1
"""Seconds between two entries: a persistent message costs the broker several times a transient one."""
PROMPT_PARTS: Final = 4
"""The first parts of an answer come without these pauses: somebody may wait for its beginning."""
MAX_WAITING_BYTES: Final = 512 * 1024
"""Bytes of parts that the bus has not taken yet; beyond this the answer's records wait."""
END_PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Pauses after each attempt to append the end; a broker that restarts is back within their sum."""


class JobWriter(Sink):
    """The writing end of one answer's log.

    Args:
        log: the log, which has its head.
        keeps_parts: whether sent parts are stored.
        alive: seconds without an entry after which a sign of life is written.
        limit: the most bytes of an end, as the attribute.
        part_bytes: the most bytes of stored parts; a larger answer has none for late followers.
        claim: the claim of the log's head, if its name is chosen.
        parts: how many the log has.
        by: the claim of the process that makes the answer; "" = there is none yet.
        clock: seconds since 1970; the first record of each part then says when it was stored. None = none says so.

    Attributes:
        begun: whether anything of the answer was sent.
        told_begun: whether the log says so, or soon does.
        claim: the claim of the log's head.
        by: as given.
        source: the answer, for another process to go on with it; None = none does.
        freed: whether any request may replace the answer, once it has ended.
    """

    def __init__(
        self,
        log: LogWriter,
        *,
        keeps_parts: bool,
        alive: float,
        limit: int,
        part_bytes: int,
        parts: int = 0,
        claim: str = "",
        by: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        self.claim = claim
        self.by = by
        self.freed = False
        self._log = log
        self._keeps_parts = keeps_parts
        self._alive = alive
        self.limit = limit
        self._part_bytes = part_bytes
        self.source: ResponseStream[Any] | None = None
        self._waiting = bytearray()
        # Where a part may end: bytes that were sent until then, and the frames that they have.
        self._marks: deque[tuple[int, int]] = deque()
        self._appended = 0
        self._number = parts
        self._cut = False
        self.begun = self.told_begun = False
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        # Held while an entry is appended.
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def empty(self) -> bool:
        """Whether nothing that is stored was sent."""
        return not (self._appended or self._waiting or self._cut)

    @override
    def send(self, data: Output, *, last: bool) -> None:
        if not self.begun:
            self.begun = True
            self._wake.set()
        if self._cut or not (self._keeps_parts and data):
            return
        part = join_output(data)
        if self._appended + len(self._waiting) + len(part) > self._part_bytes:
            self._cut = True
            return
        self._waiting += part
        if self.source is None or self.source.settled:
            self._marks.append((self._appended + len(self._waiting), 0 if self.source is None else self.source.taken))
            self._wake.set()

    @property
    @override
    def full(self) -> bool:
        # There is no mark until the reader of the answer has taken all that came at once.
        return len(self._waiting) > MAX_WAITING_BYTES and bool(self._marks)

    @override
    async def drain(self) -> None:
        while self.full:
            self._taken.clear()
            await self._taken.wait()

    async def run(self) -> None:
        """Append the sent parts, until cancelled. Run it in a task while the answer is made."""
        while True:
            await self._until_sent()
            async with self._turn:
                if self._closed:
                    return
                await self._append_next()
            if self._number >= PROMPT_PARTS:
                await asyncio.sleep(BATCH_SECONDS)

    async def settle(self) -> None:
        """Append no more. Return when the append on its way has arrived or failed, since a cancel would not undo it."""
        async with self._turn:
            self._closed = True

    async def _until_sent(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._alive):
                while not (self._marks or self.begun != self.told_begun):
                    self._wake.clear()
                    await self._wake.wait()

    async def _append_next(self) -> None:
        """Append that work has begun, or a part, or a sign of life."""
        if self.begun and not self.told_begun:
            # If this note is lost, the answer appears as queued until its end.
            self.told_begun = True
            await self.note(label(BEGUN, self.by, self.claim))
        elif self._marks:
            await self._append_part()
        else:
            await self.note(label(ALIVE))

    async def _append_part(self) -> None:
        """Append whole lines, as many as a part may have."""
        end, taken = self._marks.popleft()
        while self._marks and self._marks[0][0] <= self._appended + MAX_BATCH_BYTES:
            end, taken = self._marks.popleft()
        part = bytes(self._waiting[: end - self._appended])
        # Readers of a record ignore fields that they do not know.
        at = b'{"at":%.2f,' % self._clock() if self._clock is not None else part[:1]
        if await self.note(label_part(self._number, self.by, self.claim, taken), at + part[1:]):
            self._number += 1
            self._appended = end
            del self._waiting[: len(part)]
        else:
            # The batch may or may not be in the log. The answer goes on: its end is enough for who retrieves it.
            self._cut = True
            self._waiting.clear()
            self._marks.clear()
        self._taken.set()

    async def note(self, properties: Mapping[str, str], body: bytes = b"") -> bool:
        """Append an entry. False: it may not have arrived."""
        try:
            await self._log.append(body, properties)
        except (BusError, TooLarge):
            return False
        return True

    async def end(self, body: bytes, outcome: Outcome) -> bool:
        """Append the waiting parts and the end. If the bus fails, retry for a minute.

        False: it may be there twice, or not at all.
        """
        if self._waiting:
            async with self._turn:
                while self._waiting:
                    if not self._marks:
                        # The rest is a piece of a record.
                        self._marks.append((self._appended + len(self._waiting), 0))
                    await self._append_next()
        # Append the end anyway: without it, readers would wait until the writer counts as dead.
        if len(body) > self.limit:
            body, outcome = b"", "too-large"
        end = label_end(outcome, cut=self._cut, claim=self.claim, frees=self.freed, by=self.by)
        for pause in END_PAUSES_SECONDS:
            if await self.note(end, body):
                # Stop the signs of life here: after its end the log may be erased at any time.
                self._closed = True
                return pause == END_PAUSES_SECONDS[0]
            await asyncio.sleep(pause)
        # Readers will notice the silence, and append an end.
        log.warning("background.end_not_written")
        return False
