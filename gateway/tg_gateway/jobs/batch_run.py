"""Result of a line -> log of a batch's results; now and then how many there are -> log of the batch."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from tg_base.bus import LogWriter
from tg_gateway.dialects import IdempotencyKey, batches
from tg_gateway.jobs.log import JobLog, label_part
from tg_schema import encode
from tg_schema.errors import Cancelled, TooLarge, Unavailable

MAX_NOTES: Final = 100
"""How often it is noted how many lines of a batch have a result, so that nobody reads all of them to know."""


@dataclass(slots=True)
class BatchRun:
    """One batch while this gateway makes it.

    Attributes:
        batch: as it was begun.
        key: the name of the API key that has begun it.
        own: tells this gateway from others in its log.
        state: of its log.
        log: where its progress is appended.
        results: where results are appended.
        statuses: of the results, by their custom ids.
        number: of the next note of progress.
        size: bytes of the answers.
        asked: what the answers are called that are being made.
        turn: that of the next result.
    """

    batch: batches.Head
    key: str | None
    own: str
    state: JobLog
    log: LogWriter
    results: LogWriter
    statuses: dict[str, int]
    number: int
    size: int
    asked: list[IdempotencyKey] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def counts(self) -> batches.Counts:
        """Of the results so far."""
        return batches.Counts.of(self.statuses.values())

    async def note(self, result: batches.Result) -> None:
        """Append the result of a line that has none, and now and then how many have one. Raises BusError."""
        try:
            await self.results.append(encode(result), {})
        except TooLarge as error:
            result = replace(result, status=error.status, body=msgspec.Raw(encode({"error": error.record})))
            await self.results.append(encode(result), {})
        self.statuses[result.custom_id] = result.status
        self.size += len(result.body)
        if len(self.statuses) % max(self.batch.total // MAX_NOTES, 1) == 0:
            async with self.turn:
                self.number += 1
                await self.log.append(encode(self.counts), label_part(self.number - 1, self.own))

    def check(self) -> None:
        """Raises Unavailable if another gateway has the batch, and Cancelled if its client has cancelled it."""
        if self.state.taker != self.own:
            raise Unavailable("another gateway makes the batch")
        if self.state.cancelled:
            raise Cancelled("the batch was cancelled")
