"""Bus -> reader: the records of all calls of models, in batches that are acknowledged as a whole."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog
from typing_extensions import override

from tg_base.bus import Bus, Delivery
from tg_base.protocol import HeartbeatTiming, Subscriptions, publish_dead_letter
from tg_base.runtime import Entered
from tg_schema.topics import Topics

log = structlog.get_logger()

GROUP: Final = "usage"
"""The group of all readers: the bus keeps for it what comes while no reader is there."""
MAX_BATCH: Final = 100
"""Messages of a batch, at most; each has the records of a tenth of a second."""
GATHER_SECONDS: Final = 0.1
"""How long a batch waits for more messages."""


class UsageTopic(Entered):
    """Enter it to subscribe.

    Attributes:
        taken: the messages of the batch that is being counted.

    Raises:
        BusError: on entering, the bus did not answer in time or refused.
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
        """The next messages: one at least, and those that follow it soon. The same again, until `taken` is cleared.

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
        """Keep an unreadable record as a dead letter, so that it holds up no other; return whether it is kept."""
        log.warning("usage.unreadable", reason=reason)
        return await publish_dead_letter(self._bus, self._topics, self._topics.usage, record, reason)
