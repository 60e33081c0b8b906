"""One response in the background while it is made: requests to stop it, and whether it may be attempted again."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tg_base.client import BeginPermit
from tg_gateway.dialects import Ask, Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.live_parts import LiveParts
from tg_gateway.jobs.record_writer import RecordWriter
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BusError, IncompleteStream, RateLimited, Timeout, Unavailable

PERMIT_SECONDS: Final = 5.0
"""Seconds that a log may take to show an appended entry; after that a processor's question to begin stays
unanswered."""


@dataclass(slots=True, eq=False)
class JobRun:
    """One response, and what the outside has requested of it.

    Attributes:
        begun: set when its head is stored, or to the error that refused it.
        opening: opens its log for writing.
        claim: this process's claim, if its head was stored earlier.
        waits: whether it waited for capacity, and may wait again.
        permit: the permit of a response that waits.
        records: writes what comes as it is kept.
        writer: the writer of its log, while that is open.
        live: gets the parts as they are made.
        cancelled: a client cancelled it.
        over: another gateway or client has ended or erased it, so this process writes no end.
        erased: it was erased.
        abandoned: its client left before it got the name.
        counted: whether it counts among the running ones.
        left: another process goes on with it.
        overran: it took longer than any response may, so the next attempt would too.
    """

    asked: Ask
    background: Background
    entry: AccessLogEntry
    begun: "asyncio.Future[None]"
    opening: Callable[[], AbstractAsyncContextManager[tuple[JobWriter, str]]]
    live: LiveParts | None = None
    claim: Claim | None = None
    waits: bool = False
    permit: BeginPermit | None = None
    writer: JobWriter | None = None
    cancelled: bool = False
    over: bool = False
    erased: bool = False
    abandoned: bool = False
    counted: bool = True
    left: bool = False
    overran: bool = False
    records: RecordWriter = field(init=False)

    def __post_init__(self) -> None:
        self.records = RecordWriter(self.asked.route.spec.response, keeps_whole=self.background.keeps_whole)
        if self.waits and self.claim is not None:
            self.permit = BeginPermit(partial(self._say_asked, self.claim))

    async def _say_asked(self, claim: Claim) -> bool:
        """Log that a model is about to be asked; returns whether this gateway still owns the response."""
        try:
            async with asyncio.timeout(PERMIT_SECONDS):
                # A processor may ask before the bus has confirmed the request.
                await asyncio.wait([self.begun])
                return self.writer is not None and await claim.ask(self.writer)
        except TimeoutError:
            return False

    @property
    def lost(self) -> bool:
        """Whether another gateway declared this one dead and now makes the response."""
        return self.claim is not None and self.claim.running and not self.claim.mine

    def waits_again(self, error: TgError, *, told: bool) -> bool:
        """Whether no model has worked on the response, so that it may wait again without losing an attempt.

        Args:
            error: why the attempt failed.
            told: whether the error came from the processor.
        """
        if self.permit is None:
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
        too_long = self.overran or (isinstance(error, Timeout) and error.clock == "total")
        if self.claim is None or not self.waits or self.cancelled or self.over or too_long or not lost:
            return False
        return self.claim.mine and self.claim.log.repeatable
