"""Provider calls -> topic of usage: published in the background, so that no request waits for it."""

import asyncio
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import Final

import structlog

from tg_base.bus import Bus
from tg_base.telemetry import USAGE_LOST
from tg_schema import TgError, encode
from tg_schema.usage_record import UsageRecord

log = structlog.get_logger()

MAX_WAITING_RECORDS: Final = 100_000
"""Records that are kept while the bus takes none, about 50 MB; any more are dropped, counted and logged once."""
MAX_BATCH_RECORDS: Final = 256
"""Records that are published at the same time."""
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 10.0
"""Pauses after the bus has refused a record, which is then published again; each is twice as long as the one before."""


class UsageWriter:
    """The records of one process. `run` publishes each of them at least once.

    Args:
        bus: carries them.
        topic: `Topics.usage`.
        most: records that may wait.
    """

    def __init__(self, bus: Bus, topic: str, most: int = MAX_WAITING_RECORDS) -> None:
        self._bus = bus
        self._topic = topic
        self._most = most
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._full = self._refused = False
        self._hurry = asyncio.Event()

    def put(self, record: UsageRecord) -> None:
        """Take a record, without waiting."""
        if len(self._waiting) >= self._most:
            self._lose(1)
            return
        self._waiting.append(encode(record))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Publish what comes, until cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._wake.wait()
            if await self._publish(list(islice(self._waiting, MAX_BATCH_RECORDS))):
                pause, self._refused = FIRST_PAUSE_SECONDS, False
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause)
                self._hurry.clear()
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            if not self._waiting:
                self._full = False
                self._wake.clear()
                self._idle.set()

    async def flush(self, seconds: float) -> None:
        """Wait until the bus has everything, at most this long. What is left then is lost.

        What waits after a refusal is tried once more at once.
        """
        self._hurry.set()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            self._lose(len(self._waiting))

    async def _publish(self, batch: list[bytes]) -> bool:
        """Publish these, the first ones that wait; return whether the bus took them all. The others wait again."""
        # A record is taken out only once the bus has it: a publish that is cancelled loses none.
        taken = await asyncio.gather(*map(self._offer, batch))
        for _ in batch:
            self._waiting.popleft()
        self._waiting.extendleft(reversed([body for body, took in zip(batch, taken, strict=True) if not took]))
        return all(taken)

    async def _offer(self, body: bytes) -> bool:
        try:
            await self._bus.publish(self._topic, body, {})
        except TgError as error:
            if not self._refused:
                self._refused = True
                log.warning("usage.not_published", topic=self._topic, reason=error.message)
            return False
        return True

    def _lose(self, count: int) -> None:
        USAGE_LOST.inc(count)
        if not self._full:
            self._full = True
            log.error(
                "usage.lost", topic=self._topic, reason="the bus takes no records of usage; see tg_usage_lost_total"
            )
