"""Links over a bus that loses, repeats and reorders: the text is whole, or the stream ends in one error."""

import asyncio

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.faulty_bus import FaultyBus
from tg_base.background import running
from tg_base.bus.memory import MemoryBus
from tg_base.liveness import Liveness
from tg_base.llm_client import LlmClient
from tg_base.processor import Processor
from tg_base.requestor import Requestor
from tg_base.route import Route
from tg_schema import TEXT_COMPLETION
from tg_schema.topics import Topics

TOPICS = Topics()
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"))
QUICK = Liveness(beat=0.2)
WORDS = 40


async def paced(llm: CountingLlm) -> None:
    """Lets the model go on a little at a time, so that its words travel in many messages."""
    llm.step = asyncio.Semaphore(0)
    while True:
        for _ in range(10):
            llm.step.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(25))
async def test_what_arrives_is_whole(seed: int) -> None:
    bus = FaultyBus(MemoryBus(), lambda topic: "tg-inbox" in topic, seed=seed, share=0.3)
    llm = CountingLlm()
    async with (
        running(paced(llm)),
        Processor(bus, TOPICS, llm, (ROUTE,), liveness=QUICK),
        Requestor(bus, TOPICS, liveness=QUICK) as requestor,
    ):
        client = LlmClient(requestor, ROUTE)
        answers = await asyncio.gather(*(client.request("", str(WORDS), streaming=True, timeout=20) for _ in range(20)))
    assert set(answers) == {"".join(f"{number} " for number in range(WORDS))}
    assert bus.faults > 3
    await bus.aclose()
