"""An unreadable message is kept with its reason; of one that is too large for both, the reason is."""

from tests.fakes.network_bus import NetworkBus
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import publish_dead_letter
from tg_schema.topics import Topics

QUEUE = "persistent://public/default/queue"


async def test_a_letter_that_is_too_large_has_its_reason_alone() -> None:
    memory, topics = MemoryBus(), Topics()
    bus = NetworkBus(memory)
    bus.limit = 100
    async with memory.subscribe(topics.dead_letter(QUEUE), "operators") as letters:
        assert await publish_dead_letter(bus, topics, QUEUE, b"x" * 1000, "no request")
        letter = await anext(letters)
        assert (letter.body, letter.properties["reason"]) == (b"", "no request")
    await memory.aclose()
