"""One long answer and a hundred short ones through one processor, on one link: the short ones do not wait for it."""

import asyncio
import time
from uuid import uuid4

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.typed_clients import LlmClient
from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.topics import Topics

TOPICS = Topics()
SHORT = 100
LONGEST = 5.0
"""Seconds for each short answer on a busy machine; behind the long one it would take minutes."""


async def test_short_answers_overtake_a_long_one(bus: Bus) -> None:
    flow, service = uuid4().hex, TEXT_COMPLETION.name
    route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, service), TOPICS.response(flow, service))
    async with Processor(bus, TOPICS, CountingLlm(), (route,)), Requestor(bus, TOPICS) as requestor:
        client = LlmClient(requestor, route)
        read, begun = 0, asyncio.Event()

        async def long() -> None:
            nonlocal read
            request = TextCompletionRequest(prompt="100000000", streaming=True)
            async with client.stream(request) as records:
                async for record in records:
                    read += len(record.response or "")
                    begun.set()

        async def short() -> float:
            asked = time.monotonic()
            assert await client.request("", "5", streaming=True) == "0 1 2 3 4 "
            return time.monotonic() - asked

        flood = asyncio.create_task(long())
        try:
            await asyncio.wait_for(begun.wait(), 20)
            took = [await short() for _ in range(5)]
            before = read
            took += await asyncio.gather(*(short() for _ in range(SHORT)))
            assert not flood.done()
            assert read > before
            assert max(took) < LONGEST
        finally:
            flood.cancel()
            await asyncio.wait([flood])
