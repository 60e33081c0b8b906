"""Flex queue -> log: a gateway's claim on a waiting response; another may take it over until a model is asked.

The order of the log decides. So only one of two gateways with the same message asks a model, even if one of them was
wrongly declared dead.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from tg_base.bus import Bus, Entry
from tg_base.telemetry import new_id
from tg_gateway.jobs.log import ASKED, JobLog, erase_remnant, label_claim, label_end, label_returned, label_taken
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import BusError, NotFound


class Claim:
    """Take it first. `note` feeds it the further entries of its log.

    Args:
        bus: has the log.
        topic: the log.

    Attributes:
        own: the id that distinguishes it from others' claims.
    """

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self.own = new_id()
        self._log = JobLog()
        self._decided = asyncio.Event()

    @property
    def mine(self) -> bool:
        """Whether this gateway has it."""
        return self.running and self._log.taker == self.own

    @property
    def log(self) -> JobLog:
        """The state of its log, as far as it was read, without bodies."""
        return self._log

    @property
    def running(self) -> bool:
        """Whether the response exists, and had no end when its log was last read."""
        return self._log.owner is not None and self._log.outcome == "running"

    @property
    def position(self) -> str:
        """The position of the last entry that was read."""
        return self._log.position

    @property
    def part_count(self) -> int:
        """How many parts its log has, when it is taken."""
        return self._log.part_count

    async def take(self, load: Callable[[], Awaitable[JobLog]]) -> None:
        """Claim the response. `mine` is true if this gateway was the first, or the one before had not asked a model.

        Args:
            load: reads its log.

        Raises:
            BusError: the bus did not answer, so the owner of the claim is unknown.
        """
        try:
            await self._take(load)
        except NotFound:
            self._log = JobLog(await self._bus.read(self._topic))
            if self._log.owner is None:
                # The log was erased meanwhile: our note began a new log that nobody would find.
                await self._sweep()
            else:
                await self.give_back()
            self._log = JobLog()
        # Release the log's bodies: the response may take long, and only others need them.
        self._log.drop_bodies()

    async def _take(self, load: Callable[[], Awaitable[JobLog]]) -> None:
        await self._bus.append(self._topic, b"", label_taken(self.own))
        self._log = await load()
        if self._log.taker != self.own and self._log.waiting:
            # The broker sent the message to us, so the gateway that took it is dead or has lost it.
            await self._bus.append(self._topic, b"", label_taken(self.own, self._log.taker))
            self._log = await load()
        await self._heed_cancel(load)

    async def _heed_cancel(self, load: Callable[[], Awaitable[JobLog]]) -> None:
        if self.mine and self._log.cancelled:
            # The gateway that should stop has returned the response, or was lost.
            await self._bus.append(self._topic, b"", label_end("cancelled", by=self.own))
            self._log = await load()

    def note(self, entry: Entry) -> None:
        """One more entry of the log."""
        self._log.add(entry)
        self._log.drop_bodies()
        if self._log.asked or not self.mine:
            self._decided.set()

    async def ask(self, writer: JobWriter) -> bool:
        """Log that a model is asked next, and return whether this gateway may ask.

        Keep noting the log's entries meanwhile.
        """
        return await writer.note(label_claim(ASKED, self.own)) and await self._until_decided()

    async def _until_decided(self) -> bool:
        await self._decided.wait()
        return self.mine

    async def outlast(self, entries: AsyncIterator[Entry | None], declare_dead: Callable[[], Awaitable[None]]) -> bool:
        """Read on until the response is over or waits again; returns whether it waits. Raises BusError as `take`.

        Args:
            entries: further entries of its log; None = silence.
            declare_dead: appends that its taker is dead.
        """
        while self.running and self._log.taker:
            try:
                entry = await anext(entries)
            except StopAsyncIteration:
                return False
            if entry is not None:
                self.note(entry)
            elif self._log.waiting:
                break
            else:
                await declare_dead()
        return self.running

    async def reload(self, load: Callable[[], Awaitable[JobLog]]) -> None:
        """Read its log again before a model is asked; raises as `take`."""
        try:
            self._log = await load()
            await self._heed_cancel(load)
        except NotFound:
            self._log = JobLog()
            await self._sweep()
        self._log.drop_bodies()

    async def _sweep(self) -> None:
        with suppress(BusError):
            await erase_remnant(self._bus, self._topic)

    async def give_back(self, resumes: float | None = None) -> None:
        """Let the response wait again: no model works on it. Raises BusError as `take`.

        Args:
            resumes: as for `label_returned`.
        """
        await self._bus.append(self._topic, b"", label_returned(self.own, resumes))
