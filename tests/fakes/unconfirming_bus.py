"""A bus that takes what is published on some topics and never says so: as a broker whose acknowledgements are lost."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from tg_base.bus.memory import MemoryBus


class UnconfirmingBus(MemoryBus):
    """The bus inside one process, otherwise.

    Attributes:
        unconfirmed: the topics on which a publish never returns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unconfirmed: set[str] = set()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        if topic in self.unconfirmed:
            await asyncio.Event().wait()
