"""Provider calls -> topic of usage: published in the background, several at once, so that no request waits for it."""

import asyncio
from collections import deque
from itertools import accumulate, islice, takewhile
from typing import Final

import structlog

from tg_base.bus import Bus
from tg_base.runtime import is_set_within
from tg_base.telemetry import USAGE_LOST
from tg_schema import TgError, encode
from tg_schema.errors import TooLarge
from tg_schema.usage_record import UsageRecord

log = structlog.get_logger()

MAX_WAITING_RECORDS: Final = 100_000
"""Records that are kept while the bus accepts none, about 50 MB; any more are dropped, counted and logged once."""
GATHER_SECONDS: Final = 0.1
"""How long a message waits for more records: one for each would cost ten times as much."""
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Bytes of a message, unless a single record is larger."""
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 10.0
"""The longest pause before a message that the bus has refused is published again; each pause is twice the one
before."""


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
        self._size = MAX_MESSAGE_BYTES
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
        """Publish records until cancelled. Records that wait then, or arrive later, are lost."""
        try:
            await self._publish_all()
        finally:
            self._most = 0
            if self._waiting:
                self._lose(len(self._waiting))

    async def _publish_all(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._wake.wait()
            await is_set_within(self._hurry, GATHER_SECONDS)
            while self._waiting:
                if await self._publish(self._gather()):
                    pause, self._refused = FIRST_PAUSE_SECONDS, False
                    continue
                await is_set_within(self._hurry, pause)
                self._hurry.clear()
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            self._full = False
            self._wake.clear()
            self._idle.set()

    async def flush(self, seconds: float) -> None:
        """Wait until the bus has everything, at most this long.

        Records that wait after a refusal are tried once more at once.
        """
        self._hurry.set()
        await is_set_within(self._idle, seconds)

    def _gather(self) -> list[bytes]:
        """The first records that wait, as many as one message takes."""
        sizes = accumulate(len(body) + 1 for body in self._waiting)
        count = sum(1 for _ in takewhile(self._size.__ge__, sizes))
        return [*islice(self._waiting, max(count, 1))]

    async def _publish(self, batch: list[bytes]) -> bool:
        """Publish the first records that wait, a line for each; return whether to go on at once."""
        try:
            await self._bus.publish(self._topic, b"\n".join(batch), {})
        except TooLarge:
            if len(batch) > 1:
                # The broker may take less than is known; a record that is too large by itself would hold up all others.
                self._size = sum(map(len, batch)) // 2
                return True
            self._lose(1)
        except TgError as error:
            if not self._refused:
                self._refused = True
                log.warning("usage.not_published", topic=self._topic, reason=error.message)
            return False
        # Remove the records only now that the bus has them: a publish that is cancelled loses none.
        for _ in batch:
            self._waiting.popleft()
        return True

    def _lose(self, count: int) -> None:
        USAGE_LOST.inc(count)
        if not self._full:
            self._full = True
            log.error(
                "usage.lost", topic=self._topic, reason="the bus takes no records of usage; see tg_usage_lost_total"
            )
