"""A gateway that has just started, is far away, or has another clock: no question too many, no request lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.network_bus import NetworkBus
from tests.fakes.recording_bus import RecordingBus
from tests.fakes.typed_clients import LlmClient
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, QUEUES, QUICK, TEXTS, open_gateway
from tests.observed_calls import observe_calls
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.protocol import CONTROL, Confirmed, HeartbeatTiming, Presence, Route
from tg_base.protocol.clocks import MIN_SAMPLES
from tg_base.protocol.request_headers import FRESH_SECONDS
from tg_base.server import Processor
from tg_gateway.app import Gateway
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
        release(it.llm.step, len(let_in))
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
        release(it.llm.step, 3)
        assert "".join([record.response or "" async for record in first]) == "0 "
        assert await asyncio.gather(*waiting) == ["0 ", "0 "]


ASKED = {
    "/v1/completions": {"model": "counting", "prompt": "3"},
    "/generate": {"inputs": "3"},
    "/invocations": {"inputs": "3"},
    "/mlc/v1/chat/completions": {"model": "counting", "messages": [{"role": "user", "content": "3"}]},
}


class AskedBus(MemoryBus):
    """Tells when somebody asks who serves."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        if topic == CONFIG.topics.announce:
            self.asked.set()


@pytest.mark.parametrize("path", ASKED)
async def test_a_request_that_comes_before_its_model_is_known_is_read_by_what_the_model_can(path: str) -> None:
    bus, llm = AskedBus(), CountingLlm()
    async with (
        Requestor(bus, CONFIG.topics, timing=QUICK, queues=QUEUES) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        bus.asked.clear()
        answer: asyncio.Task[Any] = asyncio.create_task(_post(http, path))
        await bus.asked.wait()
        async with Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), timing=QUICK, grace=0.05):
            status, text = await answer
    await bus.aclose()
    assert status == 200, text
    assert "0 1 2" in text
    assert [request.raw for request in llm.requests] == [False]


async def test_a_request_whose_model_is_known_begins_no_wait() -> None:
    waits: list[object] = []
    async with open_gateway() as it:
        assert (await _post(it.http, "/generate"))[0] == 200
        with observe_calls(Requestor.until_served, waits.append):
            assert (await _post(it.http, "/generate"))[0] == 200
    assert not waits


async def _post(http: ClientSession, path: str) -> tuple[int, str]:
    async with http.post(path, json=ASKED[path]) as response:
        return response.status, await response.text()


PATH = "api/v1/text-completion"
DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_jump_in_mid_stream(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Over a network: on a bus inside one process nobody is ever taken for dead."""
    wall = time.time
    async with aclosing(MemoryBus()) as bus, open_gateway(timing=QUICK, bus=NetworkBus(bus)) as it:
        it.llm.step = asyncio.Semaphore(1)
        async with it.http.post(PATH, json={"prompt": "2", "streaming": True}) as response:
            assert b'"0 "' in await response.content.readuntil(b"\n\n")
            monkeypatch.setattr(time, "time", lambda: wall() + jump)
            await asyncio.sleep(2 * QUICK.dead_after)
            it.llm.step.release()
            rest = await response.read()
        assert b'"1 "' in rest
        assert b'"end_of_stream":true' in rest
        it.llm.step = None
        async with it.http.post(PATH, json={"prompt": "2"}) as response:
            assert (await response.json())["response"] == "0 1 "
        async with it.http.get("ready") as ready:
            assert ready.status == 200
