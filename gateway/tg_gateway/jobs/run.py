"""One answer in the background while it is made: what was said of it, whether it may be asked for again."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from tg_base.client import BeginPermit
from tg_gateway.dialects import Ask
from tg_gateway.dialects.answers import Background
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.live_parts import LiveParts
from tg_gateway.jobs.writer import JobWriter
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BusError, IncompleteStream, RateLimited, Timeout, Unavailable

PERMIT_SECONDS: Final = 5.0
"""Seconds that a log may take to show what was appended; after them a processor that asks to begin is told nothing."""


@dataclass(slots=True)
class JobRun:
    """One answer, and what was said of it from outside.

    Attributes:
        begun: its head is kept; or why it was refused.
        opening: opens its log for writing.
        claim: this gateway's, on one whose head was kept before, while it waited for room; it may wait again.
        permit: of one with a claim.
        writer: of its log, while that is open.
        live: gets the parts as they are made.
        cancelled: a client cancelled it.
        over: somebody else has ended or erased it; what this process would say of its end is of no use.
        erased: somebody has erased it.
        abandoned: who asked for it has left before its name was known.
        counted: whether it counts among those that run.
        overran: it took longer than any answer may, so the next attempt would too.
    """

    asked: Ask
    background: Background
    entry: AccessLogEntry
    begun: "asyncio.Future[None]"
    opening: Callable[[], AbstractAsyncContextManager[tuple[JobWriter, str]]]
    live: LiveParts | None = None
    claim: Claim | None = None
    permit: BeginPermit | None = None
    writer: JobWriter | None = None
    cancelled: bool = False
    over: bool = False
    erased: bool = False
    abandoned: bool = False
    counted: bool = True
    overran: bool = False

    def __post_init__(self) -> None:
        if self.claim is not None:
            self.permit = BeginPermit(partial(self._say_asked, self.claim))

    async def _say_asked(self, claim: Claim) -> bool:
        """Have the log say that a model is asked, before it is; whether the log has not given it to somebody else."""
        try:
            async with asyncio.timeout(PERMIT_SECONDS):
                # A processor may be faster than the bus's answer to who asked it.
                await asyncio.wait([self.begun])
                return self.writer is not None and await claim.ask(self.writer)
        except TimeoutError:
            return False

    @property
    def lost(self) -> bool:
        """Whether another gateway makes it, which took this one for dead."""
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
        """Whether a model may be asked once more after this: the way to the last one was lost."""
        # A server whose machine vanishes closes no connection: it is silence that tells, and a clock that ends it.
        lost = isinstance(error, (Unavailable, IncompleteStream, BusError, Timeout))
        # What takes longer than any answer may, by our clock or by that of its model, would do so again.
        too_long = self.overran or (isinstance(error, Timeout) and error.clock == "total")
        if self.claim is None or self.cancelled or self.over or too_long or not lost:
            return False
        return self.claim.mine and self.claim.log.repeatable
