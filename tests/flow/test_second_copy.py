"""What nobody waits for is dropped: the second copy that a broker has stored, and what has expired, without a slot."""

import asyncio
from collections.abc import Mapping

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.passing_bus import PassingBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server import Processor
from tg_base.server.processor import ENDED_SECONDS
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, decode, encode
from tg_schema.topics import Topics

TOPICS = Topics()


class CopyingBus(PassingBus):
    """Can publish the requests that it carried once more."""

    def __init__(self, bus: MemoryBus, topic: str) -> None:
        super().__init__(bus)
        self._topic = topic
        self._carried: list[tuple[bytes, dict[str, str]]] = []

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if topic == self._topic:
            self._carried.append((body, dict(properties)))
        await super().publish(topic, body, properties)

    async def publish_again(self) -> None:
        """All requests once more, as a client does that has lost the broker's acknowledgement."""
        for body, properties in tuple(self._carried):
            await super().publish(self._topic, body, properties)


def count_dropped() -> float:
    labels = {"service": TEXT_COMPLETION.name, "outcome": "dropped"}
    return REGISTRY.get_sample_value("tg_streams_total", labels) or 0.0


@pytest.mark.parametrize("prompt", ["0", "3"])
async def test_further_copies_are_dropped(prompt: str) -> None:
    name = TEXT_COMPLETION.name
    route = Route("twice", TEXT_COMPLETION, TOPICS.request("twice", name), TOPICS.response("twice", name))
    memory, llm = MemoryBus(), CountingLlm()
    bus = CopyingBus(memory, route.request)
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        await LlmClient(requestor, route).request("", prompt)
        before = count_dropped()
        await bus.publish_again()
        await until(lambda: count_dropped() == before + 1)
        await bus.publish_again()
        await until(lambda: count_dropped() == before + 2)
    assert len(llm.requests) == 1
    await memory.aclose()


@in_virtual_time
async def test_a_plain_peer_that_reuses_an_id_at_once_is_told() -> None:
    name = TEXT_COMPLETION.name
    route = Route("plain", TEXT_COMPLETION, TOPICS.request("plain", name), TOPICS.response("plain", name))
    memory, llm = MemoryBus(), CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with Processor(memory, TOPICS, llm, (route,)), memory.subscribe(route.response, None) as deliveries:

        async def ask() -> None:
            await memory.publish(route.request, encode(TextCompletionRequest(prompt="1")), {"id": "same"})

        async def answer() -> TextCompletionResponse:
            delivery = await anext(deliveries)
            assert delivery.properties["id"] == "same"
            return decode(TextCompletionResponse, delivery.body)

        before = count_dropped()
        await ask()
        await llm.started.wait()
        # While the first one runs, an error would end it.
        await ask()
        await until(lambda: count_dropped() == before + 1)
        llm.step.release()
        assert (await answer()).response == "0 "
        await ask()
        refused = (await answer()).error
        assert refused is not None
        assert refused.type == "bad-request"
        assert "an id of its own" in (refused.message or "")
        # Forgotten with the next tick.
        await asyncio.sleep(ENDED_SECONDS + 2 * HeartbeatTiming().tick)
        llm.step.release()
        await ask()
        assert (await answer()).response == "0 "
    await memory.aclose()


class BlockedBus(PassingBus):
    """Takes nothing for one topic while it is blocked, as a broker whose backlog there is full.

    Attributes:
        blocked: whether it is.
        reached: set when something has been published there since.
    """

    def __init__(self, bus: MemoryBus, topic: str) -> None:
        super().__init__(bus)
        self._topic = topic
        self.blocked = False
        self.reached = asyncio.Event()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if self.blocked and topic == self._topic:
            self.reached.set()
            await asyncio.Event().wait()
        await super().publish(topic, body, properties)


async def test_others_do_not_wait_until_a_plain_peer_can_be_told() -> None:
    name = TEXT_COMPLETION.name
    route = Route("plain", TEXT_COMPLETION, TOPICS.request("plain", name), TOPICS.response("plain", name))
    memory, llm = MemoryBus(), CountingLlm()
    bus = BlockedBus(memory, route.response)
    async with (
        Processor(bus, TOPICS, llm, (route,)),
        Requestor(memory, TOPICS) as requestor,
        memory.subscribe(route.response, None) as deliveries,
    ):
        for _ in range(2):
            await memory.publish(route.request, encode(TextCompletionRequest(prompt="0")), {"id": "same"})
            if not bus.blocked:
                await anext(deliveries)
                bus.blocked = True
        await asyncio.wait_for(bus.reached.wait(), 10)
        async with asyncio.timeout(10):
            await LlmClient(requestor, route).request("", "0")
    await memory.aclose()


async def test_what_has_expired_is_dropped_without_a_slot() -> None:
    name = TEXT_COMPLETION.name
    busy, idle = (
        Route(flow, TEXT_COMPLETION, TOPICS.request(flow, name), TOPICS.response(flow, name))
        for flow in ("busy", "idle")
    )
    memory, llm = MemoryBus(), CountingLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    request = TextCompletionRequest(prompt="1", streaming=True)
    async with (
        Processor(memory, TOPICS, llm, (busy, idle)),
        Requestor(memory, TOPICS) as requestor,
        LlmClient(requestor, busy).stream(request) as responses,
    ):
        await llm.started.wait()
        before = count_dropped()
        # The other queue asked for a request when the only slot was free.
        await memory.publish(idle.request, encode(request), {"id": "expired", "deadline": "0"})
        await until(lambda: count_dropped() == before + 1)
        llm.step.release()
        assert "".join([response.response or "" async for response in responses]) == "0 "
    assert len(llm.requests) == 1
    await memory.aclose()
