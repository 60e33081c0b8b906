"""Requestor -> processes: a request reaches the process that has its beginning warm, or the queue; never both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
import pytest

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.network_bus import NetworkBus
from tests.fakes.recording_bus import RecordingBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.client.warm_processes import DIRECT_SECONDS, MAX_DIRECT_BYTES
from tg_base.protocol import QUEUE_PROPERTY, EncodedRequest, Route
from tg_base.server import Processor
from tg_base.telemetry import POISON
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.topics import Topics

TOPICS = Topics()
Completions = Route[TextCompletionRequest, TextCompletionResponse]
ROUTE: Completions = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"))
OTHER: Completions = Route("g", TEXT_COMPLETION, TOPICS.request("g", "t"), TOPICS.response("g", "t"))
ASKED = TextCompletionRequest(prompt="3", streaming=True, cache_key="k")
ANSWER = "0 1 2 "


@dataclass
class Member:
    """A process with one processor, and its connection to the bus, which can be cut or held."""

    llm: CountingLlm
    network: NetworkBus
    mortal: MortalBus
    processor: Processor
    stack: AsyncExitStack

    @property
    def begun(self) -> int:
        return len(self.llm.requests)


@dataclass
class Pool:
    """A requestor, and the processes of one queue."""

    wire: RecordingBus
    requestor: Requestor
    members: list[Member] = field(default_factory=list)

    async def join(self, *, capacity: int = 2) -> Member:
        stack, llm = AsyncExitStack(), CountingLlm()
        llm.capacity = capacity
        mortal = MortalBus(self.wire)
        network = NetworkBus(mortal)
        processor = Processor(network, TOPICS, llm, (ROUTE,), grace=0.0)
        await stack.enter_async_context(processor)
        member = Member(llm, network, mortal, processor, stack)
        self.members.append(member)
        presence = self.requestor.presence
        await until(lambda: processor.name in presence.processors(ROUTE.request))
        return member

    @property
    def client(self) -> LlmClient:
        return LlmClient(self.requestor, ROUTE)

    async def ask(self, request: TextCompletionRequest = ASKED) -> str:
        return (await self.client.call(request, timeout=60)).response or ""

    @property
    def direct(self) -> int:
        """How many requests were sent past the queue."""
        return sum(QUEUE_PROPERTY in properties for _, _, properties in self.wire.published)

    @property
    def queued(self) -> int:
        return sum(topic == ROUTE.request for topic, _, _ in self.wire.published)

    async def warm(self) -> tuple[Member, Member]:
        """Have a request begun; returns who has begun it, and the other one. Both announce themselves after that."""
        assert await self.ask() == ANSWER
        warm, cold = sorted(self.members, key=lambda member: -member.begun)
        assert (warm.begun, cold.begun) == (1, 0)
        await asyncio.sleep(1.1)
        return warm, cold


@asynccontextmanager
async def open_pool(*, capacity: int = 2) -> AsyncIterator[Pool]:
    """Two processes of one queue, on a bus between machines."""
    wire = RecordingBus(MemoryBus())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(wire.aclose)
        pool = Pool(wire, await stack.enter_async_context(Requestor(NetworkBus(wire), TOPICS)))
        for _ in range(2):
            stack.push_async_callback((await pool.join(capacity=capacity)).stack.aclose)
        yield pool


@in_virtual_time
async def test_requests_of_a_key_reach_the_process_that_has_begun_one() -> None:
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        for _ in range(9):
            assert await pool.ask() == ANSWER
        assert (warm.begun, cold.begun) == (10, 0)
        assert (pool.direct, pool.queued) == (9, 1)
        # Another key, or none, goes to the queue.
        assert await pool.ask(msgspec.structs.replace(ASKED, cache_key="other")) == ANSWER
        assert await pool.ask(msgspec.structs.replace(ASKED, cache_key=None)) == ANSWER
        assert (pool.direct, pool.queued) == (9, 3)


async def test_over_every_bus(bus: Bus) -> None:
    flow, wire = uuid4().hex, RecordingBus(bus)
    route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))
    llms = (CountingLlm(), CountingLlm())
    async with (
        Processor(bus, TOPICS, llms[0], (route,), grace=0.0),
        Processor(bus, TOPICS, llms[1], (route,), grace=0.0),
        Requestor(wire, TOPICS, queues=(route.request,)) as requestor,
    ):
        await until(lambda: len(requestor.presence.serving(route.request)) == len(llms))
        client = LlmClient(requestor, route)
        large = msgspec.structs.replace(ASKED, system="x" * (MAX_DIRECT_BYTES + 1))
        for request in (ASKED, ASKED, large, ASKED):
            assert (await client.call(request)).response == ANSWER
    assert sorted(len(llm.requests) for llm in llms) == [0, 4]
    assert sum(QUEUE_PROPERTY in properties for _, _, properties in wire.published) == 3


@in_virtual_time
async def test_a_request_that_was_encoded_elsewhere_has_its_key() -> None:
    async with open_pool() as pool:
        warm, _ = await pool.warm()
        encoded = EncodedRequest.of(TEXT_COMPLETION, ASKED)
        async with pool.requestor.stream(ROUTE, encoded, timeout=60) as responses:
            assert "".join([record.response or "" async for record in responses]) == ANSWER
        assert (warm.begun, pool.direct) == (2, 1)


@in_virtual_time
async def test_a_large_request_is_fetched_from_its_requestor() -> None:
    async with open_pool() as pool:
        warm, _ = await pool.warm()
        assert await pool.ask(msgspec.structs.replace(ASKED, system="x" * (MAX_DIRECT_BYTES + 1))) == ANSWER
        assert (warm.begun, pool.direct, pool.queued) == (2, 1, 1)
        assert all(len(body) < 2 * MAX_DIRECT_BYTES for _, body, _ in pool.wire.published)


@in_virtual_time
async def test_one_process_alone_is_asked_by_the_queue() -> None:
    async with open_pool() as pool:
        _, cold = await pool.warm()
        await cold.stack.aclose()
        assert await pool.ask() == ANSWER
        assert (pool.direct, pool.queued) == (0, 2)


@in_virtual_time
async def test_what_the_warm_process_has_no_slot_for_is_queued() -> None:
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        warm.llm.step = asyncio.Semaphore(0)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(pool.client.stream(ASKED))
            await until(lambda: warm.begun == 3)
            # Known before an announcement says so: what was sent is counted.
            assert await pool.ask() == ANSWER
            assert (warm.begun, cold.begun, pool.direct) == (3, 1, 2)


@in_virtual_time
async def test_what_a_full_process_hands_back_is_queued_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with open_pool(capacity=1) as pool, Requestor(NetworkBus(pool.wire), TOPICS) as other:
        warm, cold = await pool.warm()
        warm.llm.step = cold.llm.step = asyncio.Semaphore(0)
        # Of another requestor, so that this one cannot know before the next announcement.
        unkeyed = msgspec.structs.replace(ASKED, cache_key=None)
        async with AsyncExitStack() as stack:
            await other.presence.until_served([ROUTE.request], 5)
            for _ in range(2):
                await stack.enter_async_context(LlmClient(other, ROUTE).stream(unkeyed))
            await until(lambda: warm.begun == 2 and cold.begun == 1)
            began_at, asking = loop.time(), asyncio.create_task(pool.ask())
            await until(lambda: pool.queued == 4)
            assert (pool.direct, loop.time() - began_at < DIRECT_SECONDS) == (1, True)
            release(warm.llm.step, 9)
            assert await asking == ANSWER
        assert warm.begun + cold.begun == 4


@in_virtual_time
async def test_who_began_last_stays_warm_while_another_one_says_that_it_works() -> None:
    async with open_pool(capacity=1) as pool:
        first, second = await pool.warm()
        first.llm.step = asyncio.Semaphore(0)
        async with pool.client.stream(ASKED):
            await until(lambda: first.begun == 2)
            assert await pool.ask() == ANSWER
            assert (second.begun, pool.direct) == (1, 1)
            # "accepted" comes again after five heartbeats.
            await asyncio.sleep(8)
            assert await pool.ask() == ANSWER
            assert (second.begun, pool.direct) == (2, 2)


@in_virtual_time
async def test_the_slot_of_an_answer_that_has_ended_is_free_at_once() -> None:
    async with open_pool(capacity=1) as pool:
        warm, cold = await pool.warm()
        warm.llm.step = asyncio.Semaphore(0)
        for begun in (2, 3, 4):
            asking = asyncio.create_task(pool.ask())
            # Long enough for it to be announced as running, so that only its end can say that there is room.
            await asyncio.sleep(1.5)
            release(warm.llm.step, 3)
            assert await asking == ANSWER
            assert (warm.begun, cold.begun) == (begun, 0)


@in_virtual_time
@pytest.mark.parametrize("how", ["dead", "suspended"])
async def test_a_process_that_says_nothing_delays_a_request_by_half_a_second(how: str) -> None:
    loop = asyncio.get_running_loop()
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        if how == "dead":
            warm.mortal.kill()
        else:
            warm.network.received.clear()
            warm.network.sent.clear()
        asked_at = loop.time()
        assert await pool.ask() == ANSWER
        # The queue may give it to the same process first, which is noticed in its own time.
        assert loop.time() - asked_at < DIRECT_SECONDS + 4.0
        assert (warm.begun, cold.begun, pool.direct) == (1, 1, 1)
        warm.network.received.set()
        warm.network.sent.set()
        await asyncio.sleep(5)
        # What it finds when it resumes, it does not begin: nobody confirms it.
        assert (warm.begun, cold.begun) == (1, 1)
        assert await pool.ask() == ANSWER
        assert cold.begun == 2


@in_virtual_time
async def test_a_process_that_drains_or_has_lost_the_model_hands_back() -> None:
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        await _send_directly(pool, warm, OTHER)
        await warm.processor.retire()
        # By one that has not heard of it yet.
        await _send_directly(pool, warm, ROUTE)
        assert await pool.ask() == ANSWER
        assert (warm.begun, cold.begun, pool.queued) == (1, 1, 2)


async def _send_directly(pool: Pool, member: Member, route: Completions) -> None:
    """Send a request of nobody's; return when it is handed back."""
    before = len(pool.wire.published)
    headers = {"id": "a", "attempt": "1", "reply": pool.requestor._inbox.topic, QUEUE_PROPERTY: route.request}
    await pool.wire.publish(TOPICS.control(member.processor.name), encode(ASKED), headers)
    await until(lambda: any(b'"returned","a"' in body for _, body, _ in pool.wire.published[before:]))


@in_virtual_time
async def test_what_nobody_can_answer_or_read_is_poison_alone() -> None:
    async with open_pool() as pool:
        warm, _ = await pool.warm()
        topic = TOPICS.control(warm.processor.name)
        # A topic's own count: nothing was poison on it before.
        poison = POISON.labels(topic)
        for properties in ({"id": "a"}, {"id": "a", "reply": pool.requestor._inbox.topic, "attempt": "x"}):
            await pool.wire.publish(topic, b"{}", {QUEUE_PROPERTY: ROUTE.request, **properties})
        await until(lambda: poison._value.get() == 2)
        assert await pool.ask() == ANSWER
        assert warm.begun == 2


@in_virtual_time
async def test_who_leaves_before_it_has_begun_is_not_answered() -> None:
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        warm.network.received.clear()
        async with pool.client.stream(ASKED):
            pass
        warm.network.received.set()
        await asyncio.sleep(2)
        assert (warm.begun, cold.begun, pool.direct) == (1, 0, 1)
        assert not warm.processor.host.running


@in_virtual_time
async def test_a_process_of_an_older_version_is_sent_nothing_directly() -> None:
    async with open_pool() as pool:
        warm, cold = await pool.warm()
        for member, service in pool.requestor.presence._serving(ROUTE.request):
            # As it announces itself: it does not know the field.
            service.presence = msgspec.structs.replace(service.presence, direct=-1)
            assert member.record.processor in {warm.processor.name, cold.processor.name}
        assert await pool.ask() == ANSWER
        assert (pool.direct, pool.queued) == (0, 2)
