"""One response while it is made: requests to stop it, and whether it may be attempted again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tg_base.bus import Entry
from tg_base.client import BeginPermit, ResponseStream
from tg_gateway.dialects import Ask, Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import CANCEL, END, kind_of
from tg_gateway.jobs.record_writer import RecordWriter
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.relay import Exchange
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BusError, Cancelled, IncompleteStream, RateLimited, Timeout, Unavailable

PERMIT_SECONDS: Final = 5.0
"""Seconds that a log may take to show an appended entry; after that a processor's question to begin stays
unanswered."""


@dataclass(slots=True, eq=False)
class JobRun:
    """One response, and what the outside has requested of it.

    Attributes:
        claim: the claim of this process.
        on_asked: called once the service is asked.
        waits: whether it waited for capacity, and may wait again.
        permit: asked before a processor may begin; None = processors begin at once.
        records: writes what comes as it is kept.
        exchange: the request and its answer, while it is asked.
        writer: the writer of its log, while that is open.
        opened: set once its service is asked.
        erased: it was erased.
        left: another process goes on with it.
        asking: the note where a model is asked is being appended, and may or may not be in the log.
    """

    asked: Ask
    background: Background
    entry: AccessLogEntry
    claim: Claim
    on_asked: Callable[[], None]
    waits: bool = False
    permit: BeginPermit | None = None
    exchange: Exchange | None = None
    writer: JobWriter | None = None
    erased: bool = False
    left: bool = False
    asking: bool = False
    records: RecordWriter = field(init=False)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.records = RecordWriter(self.asked.route.spec.response, keeps_whole=self.background.keeps_whole)
        if not (self.asked.route.plain or self.claim.adopted):
            self.permit = BeginPermit(self._say_asked, repeats=not self.waits)

    async def _say_asked(self) -> bool:
        """Log where a model is about to be asked; returns whether this process still has the response."""
        try:
            async with asyncio.timeout(PERMIT_SECONDS):
                # A processor may ask before the bus has confirmed the request.
                await self.opened.wait()
                stream = self.stream
                if self.left or stream is None or stream.origin is None or self.writer is None:
                    return False
                self.asking = True
                return await self.claim.ask(self.writer, stream.origin)
        except TimeoutError:
            return False

    @property
    def stream(self) -> ResponseStream[Any] | None:
        """Its answer, if another process could adopt it; None = none could."""
        responses = None if self.exchange is None else self.exchange.responses
        return responses if isinstance(responses, ResponseStream) and not self.asked.route.plain else None

    def stop(self, error: TgError) -> None:
        """End it with this error."""
        if self.exchange is not None:
            self.exchange.responses.fail(error)

    def note_erased(self) -> None:
        """Its log was erased: stop the model."""
        self.erased = True
        self.stop(Cancelled("the response was deleted"))

    def note(self, entry: Entry) -> bool:
        """Take an entry of its log, which may stop the model; returns whether later entries are irrelevant."""
        kind, before = kind_of(entry), self.claim.mine
        self.claim.note(entry)
        if self.claim.lost:
            if before and (stream := self.stream) is not None:
                # Who has it now goes on with our model.
                self.left = stream.left = True
            self.stop(Cancelled("another process makes the response"))
            return True
        if kind == END and self.claim.running:
            # The entry comes from a process declared dead that does not know it yet.
            return False
        if kind in {CANCEL, END}:
            self.stop(Cancelled("the response was cancelled"))
        return kind == END

    def leave(self) -> None:
        """Let another process go on with it. Its model, if it was asked, goes on."""
        if (stream := self.stream) is not None:
            # A model that the log may name has to go on. One that gets no permission to begin ends by itself.
            self.left, stream.left = True, self.asking or bool(self.claim.log.maker)
            stream.fail(Unavailable("another process goes on with the response"))

    def waits_again(self, error: TgError, *, told: bool) -> bool:
        """Whether no model has worked on the response, so that it may wait again without losing an attempt.

        Args:
            error: why the attempt failed.
            told: whether the error came from the processor.
        """
        if self.permit is None or not self.waits:
            return False
        if not self.permit.begun:
            return error.retryable
        # A fast failure means that nothing was billed, so it may be retried; a slow one may have cost money.
        unavailable = isinstance(error, Unavailable) and told and not self.permit.works
        return isinstance(error, RateLimited) or unavailable

    def is_repeatable(self, error: TgError) -> bool:
        """Whether another attempt may follow this error: the connection to the last model was lost."""
        # A server whose machine vanishes closes no connection; only a clock notices its silence.
        lost = isinstance(error, (Unavailable, IncompleteStream, BusError, Timeout))
        # A response that took too long, by our clock or the model's, would take too long again.
        too_long = isinstance(error, Timeout) and error.clock == "total"
        if not (self.waits and lost) or too_long or self.left or self.erased:
            return False
        return self.claim.mine and self.claim.log.repeatable
