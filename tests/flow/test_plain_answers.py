"""Topics on which plain peers answer: requests that need the same one wait for one attempt to read it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from typing_extensions import override

from tests.fakes.passing_bus import PassingBus
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TgError, encode
from tg_schema.errors import BusError, Unavailable
from tg_schema.text_completion import TextCompletionResponse
from tg_schema.topics import Topics

TOPICS = Topics()
ROUTE = Route("p", TEXT_COMPLETION, TOPICS.request("p", "t"), TOPICS.response("p", "t"), plain=True)


class SlowBus(PassingBus):
    """Refuses the topic of answers, or opens it, `seconds` after it was asked."""

    seconds = 2.0
    refuses = True
    asked = 0

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        if topic == ROUTE.response:
            self.asked += 1
            await asyncio.sleep(self.seconds)
            if self.refuses:
                raise BusError("an operator must raise maxConsumersPerTopic")
        async with super().subscribe(topic, group, prefetch=prefetch) as deliveries:
            yield deliveries


async def ask(requestor: Requestor, timeout: float, total: float | None = None) -> tuple[float, TgError | None]:
    """When it has ended, and its error."""
    loop = asyncio.get_running_loop()
    try:
        request = TextCompletionRequest(prompt="x")
        async with requestor.stream(ROUTE, request, timeout=timeout, total=total) as stream:
            async for _ in stream:
                pass
    except TgError as error:
        return round(loop.time(), 1), error
    return round(loop.time(), 1), None


@in_virtual_time
async def test_each_request_ends_at_its_own_deadline() -> None:
    bus = SlowBus(MemoryBus())
    async with Requestor(bus, TOPICS) as requestor:
        limits = ((0.5, None), (1.0, None), (1.0, None), (5.0, None), (60.0, None), (60.0, 1.5))
        ended = await asyncio.gather(*(ask(requestor, *each) for each in limits))
        assert [seconds for seconds, _ in ended] == [0.5, 1.0, 1.0, 2.0, 2.0, 1.5]
        assert all(isinstance(error, BusError) for _, error in ended)
        assert bus.asked == 1, "they wait for the same attempt"
        bus.refuses = False
        asking = asyncio.create_task(ask(requestor, 60.0))
        async with bus.subscribe(ROUTE.request, "theirs") as requests:
            name = (await anext(requests)).properties["id"]
            await bus.publish(ROUTE.response, encode(TextCompletionResponse(end_of_stream=True)), {"id": name})
            assert await asking == (4.0, None), "a topic that was refused is asked for again"
        assert bus.asked == 2


@in_virtual_time
async def test_who_waits_for_a_topic_hears_that_its_process_ends() -> None:
    bus = SlowBus(MemoryBus())
    async with Requestor(bus, TOPICS) as requestor:
        asking = asyncio.create_task(ask(requestor, 60.0))
        await until(lambda: bus.asked == 1)
    _, error = await asking
    assert isinstance(error, Unavailable)
