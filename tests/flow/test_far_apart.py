"""A requestor and a processor far apart, or with clocks that differ: no question too many, no request lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.network_bus import NetworkBus
from tests.fakes.recording_bus import RecordingBus
from tests.fakes.typed_clients import LlmClient
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.protocol import CONTROL, Confirmed, HeartbeatTiming, Presence, Route
from tg_base.protocol.clocks import MIN_SAMPLES
from tg_base.protocol.request_headers import FRESH_SECONDS
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, decode
from tg_schema.errors import RateLimited
from tg_schema.topics import Topics

TOPICS = Topics()
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"), queue=1)
OTHER = Route("g", TEXT_COMPLETION, TOPICS.request("g", "t"), TOPICS.response("g", "t"))
TEN_MINUTES = 600.0
BEAT = HeartbeatTiming(interval=0.3)


@dataclass
class Pipeline:
    llm: CountingLlm
    requestor: Requestor
    client: LlmClient
    wire: RecordingBus

    @property
    def questions(self) -> int:
        """How often a processor had to ask whether a request is still wanted."""
        published = [body for topic, body, _ in self.wire.published if "tg-control" in topic and body]
        return sum(isinstance(decode(CONTROL, body), Confirmed) for body in published)


@asynccontextmanager
async def pipeline(
    *, delay: float = 0.0, clock_ahead: float = 0.0, capacity: int = 256, acquainted: bool = True
) -> AsyncIterator[Pipeline]:
    """Both ends with their network: seconds that a way takes, seconds that the processor's clock is ahead.

    Acquainted, the processor has heard enough heartbeats to know the requestor's clock.
    """
    wire, llm = RecordingBus(MemoryBus()), CountingLlm()
    llm.capacity = capacity
    theirs, ours = NetworkBus(wire), NetworkBus(wire)
    theirs.delay = ours.delay = delay
    theirs.clock_ahead = clock_ahead
    async with (
        Processor(theirs, TOPICS, llm, (ROUTE, OTHER), timing=BEAT),
        Requestor(ours, TOPICS, timing=BEAT) as requestor,
    ):
        client = LlmClient(requestor, ROUTE)
        if acquainted:
            await heartbeats(wire)
        yield Pipeline(llm, requestor, client, wire)
    await wire.aclose()


async def heartbeats(wire: RecordingBus) -> None:
    """Return when the processor has heard enough of them."""
    async with asyncio.timeout(30), wire.subscribe(TOPICS.presence, None) as announcements:
        topic = TOPICS.control(decode(Presence, (await anext(announcements)).body).processor)
        while sum(told == topic and b"heartbeat" in body for told, body, _ in wire.published) < MIN_SAMPLES:
            await anext(announcements)
        await anext(announcements)


@in_virtual_time
async def test_a_long_way_is_not_taken_for_a_second_delivery() -> None:
    async with pipeline(delay=3 * FRESH_SECONDS) as it:
        for _ in range(3):
            assert await it.client.request("", "2") == "0 1 "
        assert it.questions == 0


@pytest.mark.parametrize("clock_ahead", [TEN_MINUTES, -TEN_MINUTES])
@in_virtual_time
async def test_clocks_that_differ_by_ten_minutes(clock_ahead: float) -> None:
    async with pipeline(clock_ahead=clock_ahead) as it:
        for _ in range(3):
            assert await it.client.request("", "2", timeout=60) == "0 1 "
        assert it.questions == 0


@pytest.mark.parametrize("clock_ahead", [0.0, TEN_MINUTES, -TEN_MINUTES])
@in_virtual_time
async def test_what_waited_is_known_whatever_the_clocks_say(clock_ahead: float) -> None:
    async with pipeline(clock_ahead=clock_ahead, capacity=1) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with it.client.stream(TextCompletionRequest(prompt="1", streaming=True)) as first:
            await it.llm.started.wait()
            waiting = asyncio.create_task(it.client.request("", "1"))
            await asyncio.sleep(2 * FRESH_SECONDS)
            it.llm.step.release()
            assert "".join([record.response or "" async for record in first]) == "0 "
        it.llm.step.release()
        assert await waiting == "0 "
        assert it.questions == 1


@in_virtual_time
async def test_a_burst_at_the_start_finds_the_bound_of_the_queue() -> None:
    async with pipeline(capacity=1, acquainted=False) as it:
        it.llm.step = asyncio.Semaphore(0)
        client = Client(it.requestor, ROUTE, bounded=True)
        asked = [asyncio.create_task(client.call(TextCompletionRequest(prompt="1"))) for _ in range(5)]
        refused, let_in = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 3:
            refused, let_in = await asyncio.wait(asked, timeout=0.01)
        assert all(isinstance(task.exception(), RateLimited) for task in refused)
        for _ in let_in:
            it.llm.step.release()
        assert [(await task).response for task in let_in] == ["0 ", "0 "]


@in_virtual_time
async def test_an_idle_flow_holds_no_slot_of_its_model() -> None:
    async with pipeline(capacity=1) as it, AsyncExitStack() as stack:
        other = LlmClient(it.requestor, OTHER)
        for _ in range(3):
            assert await it.client.request("", "2", timeout=30) == "0 1 "
            assert await other.request("", "2", timeout=30) == "0 1 "
        it.llm.step = asyncio.Semaphore(0)
        first = await stack.enter_async_context(it.client.stream(TextCompletionRequest(prompt="1", streaming=True)))
        await it.llm.started.wait()
        waiting = [asyncio.create_task(client.request("", "1", timeout=60)) for client in (other, it.client)]
        for _ in range(3):
            it.llm.step.release()
        assert "".join([record.response or "" async for record in first]) == "0 "
        assert await asyncio.gather(*waiting) == ["0 ", "0 "]
