"""Result of a line -> log of a batch's results; how many there are, now and then -> log of the batch."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from tg_base.bus import LogWriter
from tg_gateway.dialects import IdempotencyKey, batches
from tg_gateway.jobs.log import JobLog, label_part
from tg_schema import encode
from tg_schema.errors import TooLarge

MAX_NOTES: Final = 100
"""Notes of progress of one batch. Who asks how far it is reads these, and not all results."""


@dataclass(slots=True)
class BatchRun:
    """One batch while this gateway makes it.

    Attributes:
        batch: as it was begun.
        key: the name of the API key that has begun it.
        own: tells this gateway from others in its log.
        state: the state of its log.
        log: where its progress is appended.
        results: where results are appended.
        statuses: the status of each result, by its custom id.
        number: the number of the next note of progress.
        size: bytes of the answers.
        asked: the names of the answers that are being made.
        turn: held while a note of progress is appended.
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
        """How many results there are so far."""
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
