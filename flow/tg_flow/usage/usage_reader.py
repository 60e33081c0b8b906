"""Topic of usage -> reader -> database: each record counts once, however often it arrives."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog
from msgspec.structs import astuple, replace
from typing_extensions import override

from tg_base.bus import Bus, Delivery
from tg_base.protocol import HeartbeatTiming, Subscriptions, publish_dead_letter
from tg_base.runtime import Entered, translate_defects
from tg_flow.usage.prices import Prices
from tg_flow.usage.usage_store import UsageStore
from tg_schema import TgError, decode
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import BadRequest, Internal
from tg_schema.topics import Topics
from tg_schema.usage_record import UsageRecord

log = structlog.get_logger()

KNOWN_VERSION: Final = 1
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 0.1
FINISH_SECONDS: Final = 10.0
"""How long an ending process waits for prices and database, on a bus whose records end with the process."""
RETURN_SECONDS: Final = 60.0
"""After this time the bus redelivers a message with a record that could neither be read nor kept as a dead letter."""
MOST_TOKENS: Final = 10**12
"""Most tokens of one call. A higher count is an error of its writer, and would spoil the sums."""
MOST_COST: Final = 10**15
"""Highest cost of one call, in nano-dollars: a million dollars."""
GROUP: Final = "usage"
"""The subscription that all readers share. The bus keeps messages for it while no reader runs."""
MAX_BATCH: Final = 100
"""Most messages of a batch; a message has the records of a tenth of a second."""
GATHER_SECONDS: Final = 0.1
"""How long a batch waits for more messages."""


class UsageTopic(Entered):
    """The subscription to the topic of usage. Enter it to subscribe.

    Attributes:
        taken: the messages of the batch that is being counted.

    Raises:
        BusError: on entering, the bus did not answer in time, or refused.
    """

    def __init__(self, bus: Bus, topics: Topics) -> None:
        super().__init__()
        self._bus = bus
        self._topics = topics
        self.taken: list[Delivery] = []

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        opened = Subscriptions(self._bus, give_up=HeartbeatTiming().give_up)
        subscriptions = await stack.enter_async_context(opened)
        self._deliveries = await stack.enter_async_context(subscriptions.open(self._topics.usage, GROUP))

    async def take(self, patience: float | None = None) -> Sequence[Delivery]:
        """The next messages: at least one, and those that follow it soon. The same ones again until `taken` is cleared.

        Raises:
            TimeoutError: none came within `patience` seconds.
        """
        if not self.taken:
            async with asyncio.timeout(patience):
                self.taken.append(await anext(self._deliveries))
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):
                while len(self.taken) < MAX_BATCH:
                    self.taken.append(await anext(self._deliveries))
        return self.taken

    async def discard(self, record: bytes, reason: str) -> bool:
        """Keep an unreadable record as a dead letter, so that it does not block others. Returns whether it was kept."""
        log.warning("usage.unreadable", reason=reason)
        return await publish_dead_letter(self._bus, self._topics, self._topics.usage, record, reason)


class UsageReader:
    """Counts records of usage while it runs.

    A message has one record a line. It is acknowledged after its sums are on disk. If the process dies in between, the
    message is redelivered, and the database recognizes its records. While the database is down, messages stay on the
    topic.

    Args:
        topic: the source of the records.
        database: the store of the sums.
        prices: the prices of the models.
        first_pause: seconds before a batch that the database did not accept is written again; doubled each time.
    """

    def __init__(
        self, topic: UsageTopic, database: UsageStore, prices: Prices, *, first_pause: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._topic = topic
        self._database = database
        self._prices = prices
        self._first_pause = first_pause
        self._told_newer = False

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self._count_next()

    async def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """After `run`: count the records that are already there, on a bus that ends with this process."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._count_next(PATIENCE_SECONDS)
        except TimeoutError:
            if lost := len(self._topic.taken):
                log.error("usage.lost", messages=lost, reason="they were not counted before the process ended")

    async def _count_next(self, patience: float | None = None) -> None:
        records: list[UsageRecord] = []
        settled = [(delivery, await self._read(delivery, records)) for delivery in await self._topic.take(patience)]
        await self._count(records)
        for delivery, kept in settled:
            if kept:
                delivery.ack()
            else:
                delivery.nack(RETURN_SECONDS)
        self._topic.taken = []

    async def _read(self, delivery: Delivery, records: list[UsageRecord]) -> bool:
        """Add a message's records to `records`. Returns whether each unreadable one was kept as a dead letter."""
        kept = True
        for line in delivery.body.split(b"\n"):
            try:
                records.append(self._decode(line))
            except BadRequest as error:
                kept = await self._topic.discard(line, error.message) and kept
        return kept

    def _decode(self, line: bytes) -> UsageRecord:
        record = decode(UsageRecord, line)
        _check(record)
        if record.version > KNOWN_VERSION and not self._told_newer:
            self._told_newer = True
            reason = "what this reader does not know of them is lost; update it"
            log.warning("usage.newer_records", version=record.version, known=KNOWN_VERSION, reason=reason)
        return record

    async def _count(self, records: Sequence[UsageRecord]) -> None:
        """Write the records; return once the database has them."""
        pause, waiting = self._first_pause, False
        # Two peers may have written the same record. Only the processor knows when the call began, so ignore that time.
        counted = [replace(record, began_at=0) if record.unique else record for record in records]
        while True:
            try:
                with translate_defects(Internal, "usage could not be counted", "usage.defect", log):
                    costs = await self._prices.find_costs(records)
                    await asyncio.to_thread(self._database.add, list(zip(counted, costs, strict=True)))
            except TgError as error:
                if not waiting:
                    log.error("usage.waiting", reason=error.message, records=len(records))
                waiting = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            if waiting:
                log.info("usage.recovered")
            return


def _check(record: UsageRecord) -> None:
    """Raises BadRequest, if a number is out of range."""
    if any(not 0 <= (count or 0) <= MOST_TOKENS for count in astuple(record.usage)):
        raise BadRequest(f"a count of tokens is not between 0 and {MOST_TOKENS}")
    if not 0 <= (record.cost or 0) <= MOST_COST:
        raise BadRequest(f"the cost is not between 0 and {MOST_COST} nano-dollars")
    numbers = (record.attempt, record.call, record.began_at, record.ended_at)
    if not all(0 <= number <= MAX_COUNT for number in numbers):
        raise BadRequest(f"attempt, call, began_at or ended_at is not between 0 and {MAX_COUNT}")
