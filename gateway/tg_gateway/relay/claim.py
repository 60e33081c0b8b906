"""Band -> log: one gateway's hold on an answer that waits, which it may lose until a model is asked.

The order of the log decides. So of two gateways that have the same message one alone asks a model, also where one of
them was taken for dead and was not.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tg_base.bus import Bus, Entry
from tg_base.telemetry import new_id
from tg_gateway.relay.answer_log import ASKED, RETURNED, AnswerLog, label_claim, label_taken
from tg_gateway.relay.answer_writer import AnswerWriter


class Claim:
    """Take it first. It reads on in its log by `note`.

    Args:
        bus: has the log.
        topic: the log.
    """

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._own = new_id()
        self._log = AnswerLog()
        self._decided = asyncio.Event()

    @property
    def mine(self) -> bool:
        """Whether this gateway has it."""
        return self.running and self._log.taker == self._own

    @property
    def running(self) -> bool:
        """Whether it had no end when its log was read last."""
        return self._log.outcome == "running"

    @property
    def position(self) -> str:
        """Of the last entry that was read."""
        return self._log.position

    @property
    def part_count(self) -> int:
        """How many parts its log has, when it is taken."""
        return self._log.part_count

    async def take(self, load: Callable[[], Awaitable[AnswerLog]]) -> None:
        """Try to have it; `mine` says whether this gateway was the first, or its taker had not asked a model.

        Args:
            load: reads its log.

        Raises:
            BusError: the bus did not answer; so nobody knows who has it.
            TgError: of `load`.
        """
        await self._bus.append(self._topic, b"", label_taken(self._own))
        self._log = await load()
        if self._log.taker != self._own and self._log.waiting:
            # The message has come here, so its taker is dead or has lost it.
            await self._bus.append(self._topic, b"", label_taken(self._own, self._log.taker))
            self._log = await load()
        # The answer may take long, and it is for others.
        self._log.drop_bodies()

    def note(self, entry: Entry) -> None:
        """One more entry of the log, as long as it is not decided who asks a model."""
        if self._decided.is_set():
            return
        self._log.add(entry)
        if self._log.asked or not self.mine:
            self._decided.set()

    async def ask(self, writer: AnswerWriter) -> bool:
        """Log that a model is asked next, and return whether it may be. The log's entries must be noted meanwhile."""
        return await writer.note(label_claim(ASKED, self._own)) and await self._until_decided()

    async def _until_decided(self) -> bool:
        await self._decided.wait()
        return self.mine

    async def give_back(self) -> None:
        """Let it wait again: no model makes it. Raises BusError as `take`."""
        await self._bus.append(self._topic, b"", label_claim(RETURNED, self._own))
