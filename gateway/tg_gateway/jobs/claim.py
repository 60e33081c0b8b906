"""Flex queue -> log: a gateway's claim on a waiting response; another may take it over until a model is asked.

The order of the log decides. So only one of two gateways with the same message asks a model, even if one of them was
wrongly declared dead.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from tg_base.bus import Entry
from tg_base.telemetry import new_id
from tg_gateway.dialects import Background
from tg_gateway.jobs.log import ASKED, JobLog, label_claim, label_end, label_returned, label_taken
from tg_gateway.jobs.logs import JobLogs, is_name
from tg_gateway.jobs.writer import JobWriter
from tg_schema.errors import NotFound


class Claim:
    """Take it first. `note` feeds it the further entries of its log.

    Args:
        logs: has the log.
        key: the name of the key that asked.
        name: the name of the answer.

    Attributes:
        own: the id that distinguishes it from others' claims.
        log: the state of its log, as far as it was read, without bodies.
        adopted: the lines of an answer that goes on; None = a model is to be asked.
    """

    def __init__(self, logs: JobLogs, key: str | None, name: str) -> None:
        self._logs = logs
        self._owner = logs.owner(key)
        self._name = name
        self.own = new_id()
        self.log = JobLog()
        self.adopted: bytes | None = None
        self._decided = asyncio.Event()

    @property
    def mine(self) -> bool:
        """Whether this gateway has it."""
        return self.running and self.log.taker == self.own

    @property
    def running(self) -> bool:
        """Whether the response exists, and had no end when its log was last read."""
        return self.log.owner is not None and self.log.outcome == "running"

    async def take(self, *, asks: bool = False) -> None:
        """Claim the response. `mine` is true if this gateway was the first, or the one before had not asked a model.

        Args:
            asks: whether it asks a model as soon as it has the response, with no permit.

        Raises:
            BusError: the bus did not answer, so the owner of the claim is unknown.
        """
        # Check the name before it becomes part of a topic's name: anybody may have put it on the bus.
        if not is_name(self._name):
            return
        try:
            await self._append(label_taken(self.own, asks=asks))
            await self._load()
            if self.log.taker != self.own and self.log.waiting:
                # The broker sent the message to us, so the gateway that took it is dead or has lost it.
                await self._append(label_taken(self.own, self.log.taker, asks=asks))
                await self._load()
            elif self.log.taker != self.own and asks and self.running and self.log.origin is not None:
                # What makes it goes on for a while, and what that process still says of it counts no more.
                await self._append(label_taken(self.own, self.log.taker, asks=True, adopts=True))
                await self._load()
                self.adopted = b"".join(self.log.take_parts())
            await self._heed_cancel()
        except NotFound:
            self.log = JobLog(await self._logs.bus.read(self._logs.topic(self._name)))
            if self.log.owner is None:
                # The log was erased meanwhile: our note began a new log that nobody would find.
                await self._logs.sweep_remnant(self._name)
            else:
                await self.give_back()
            self.log = JobLog()
        # Release the log's bodies: the response may take long, and only others need them.
        self.log.drop_bodies()

    async def _append(self, properties: Mapping[str, str]) -> None:
        await self._logs.bus.append(self._logs.topic(self._name), b"", properties)

    async def _load(self) -> None:
        self.log = await self._logs.load(self._owner, self._name)

    async def _heed_cancel(self) -> None:
        if self.mine and self.log.cancelled:
            # The gateway that should stop has returned the response, or was lost.
            await self._append(label_end("cancelled", by=self.own))
            await self._load()

    def note(self, entry: Entry) -> None:
        """One more entry of the log."""
        self.log.add(entry)
        self.log.drop_bodies()
        if self.log.asked or not self.mine:
            self._decided.set()

    async def ask(self, writer: JobWriter) -> bool:
        """Log that a model is asked next, and return whether this gateway may ask.

        Keep noting the log's entries meanwhile.
        """
        return await writer.note(label_claim(ASKED, self.own)) and await self._until_decided()

    async def _until_decided(self) -> bool:
        await self._decided.wait()
        return self.mine

    async def outlast(self) -> bool:
        """Read on until the response, which another gateway took, is over or waits again; returns whether it waits.

        Raises:
            BusError: as `take`.
        """
        async with aclosing(self._logs.watch(self._name, self.log.position)) as entries:
            while self.running and self.log.taker:
                try:
                    entry = await anext(entries)
                except StopAsyncIteration:
                    return False
                if entry is not None:
                    self.note(entry)
                elif self.log.waiting:
                    break
                else:
                    await self._logs.declare_dead(self._name, self.log)
        return self.running

    async def reload(self) -> None:
        """Read its log again after a pause, before a model is asked. Raises BusError as `take`."""
        try:
            await self._load()
            await self._heed_cancel()
        except NotFound:
            self.log = JobLog()
            await self._logs.sweep_remnant(self._name)
        self.log.drop_bodies()

    @asynccontextmanager
    async def write(self, background: Background) -> AsyncIterator[tuple[JobWriter, str]]:
        """Write the answer. Entering gives the position after which its log is new. Raises BusError."""
        self._logs.written.mark(self._name, waits=False)
        async with self._logs.write(background, parts=self.log.part_count, by=self.own) as writer:
            yield writer, self.log.position

    async def give_back(self, *, spent: bool = False) -> None:
        """Let the response wait again: no model works on it. Raises BusError as `take`.

        Args:
            spent: whether a model may have been asked, so that one attempt is used and a pause follows.
        """
        self._logs.written.mark(self._name, waits=True)
        resumes = self._logs.pauses.choose(self.log.attempts, self.log.waits or 0.0) if spent else None
        await self._append(label_returned(self.own, resumes))
