"""What is begun at most once: after its caller's permit, whoever dies; and second copies, dropped without a slot."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, SteppedLlm
from tests.fakes.network_bus import NetworkBus
from tests.fakes.passing_bus import PassingBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.client import BeginPermit, Requestor
from tg_base.protocol import HeartbeatTiming, Presence, Route
from tg_base.server import Processor
from tg_base.server.processor import ENDED_SECONDS
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import BusError, Unavailable
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
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(0)
    async with (
        aclosing(MemoryBus()) as memory,
        Processor(memory, TOPICS, llm, (route,)),
        memory.subscribe(route.response, None) as deliveries,
    ):

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
        await asyncio.wait_for(LlmClient(requestor, route).request("", "0"), 10)
    await memory.aclose()


async def test_what_has_expired_is_dropped_without_a_slot() -> None:
    name = TEXT_COMPLETION.name
    busy, idle = (
        Route(flow, TEXT_COMPLETION, TOPICS.request(flow, name), TOPICS.response(flow, name))
        for flow in ("busy", "idle")
    )
    llm = CountingLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    request = TextCompletionRequest(prompt="1", streaming=True)
    async with (
        aclosing(MemoryBus()) as memory,
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


QUICK = HeartbeatTiming(interval=0.2)
REQUEST = TextCompletionRequest(prompt="3", streaming=True)
LARGE = TextCompletionRequest(system="x" * 3_000_000, prompt="3", streaming=True)
Completions = Route[TextCompletionRequest, TextCompletionResponse]


@dataclass
class Caller:
    """Says whether a processor may begin."""

    answers: list[bool] = field(default_factory=list)
    may: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def check(self) -> bool:
        self.asked.set()
        await self.may.wait()
        return self.answers.pop(0) if self.answers else True


async def read(
    requestor: Requestor, route: Completions, permit: BeginPermit, request: TextCompletionRequest = REQUEST
) -> str:
    """The whole answer."""
    async with requestor.stream(route, request, timeout=30, permit=permit) as responses:
        return "".join([record.response or "" async for record in responses])


@pytest.mark.parametrize("request_", [REQUEST, LARGE], ids=["small", "large"])
async def test_nothing_is_begun_before_the_caller_permits_it(
    memory: MemoryBus, route: Completions, request_: TextCompletionRequest
) -> None:
    llm, caller = CountingLlm(), Caller(answers=[False])
    async with Processor(memory, TOPICS, llm, (route,)), Requestor(memory, TOPICS) as requestor:
        permit = BeginPermit(caller.check)
        reading = asyncio.create_task(read(requestor, route, permit, request_))
        await caller.asked.wait()
        assert (llm.requests, permit.granted, permit.begun) == ([], False, False)
        # The first answer is No; the processor asks again.
        caller.may.set()
        assert await reading == "0 1 2 "
        assert ([each.system for each in llm.requests], permit.begun) == ([request_.system], True)


async def test_who_asks_while_it_is_checked_gets_that_answer_and_has_nothing_checked_again() -> None:
    caller = Caller(answers=[False])
    permit = BeginPermit(caller.check)
    asking = [asyncio.create_task(permit.grant()) for _ in range(3)]
    await caller.asked.wait()
    caller.may.set()
    assert await asyncio.gather(*asking) == [False] * 3
    assert await permit.grant()


@contextmanager
def cut_off(bus: NetworkBus) -> Iterator[None]:
    """Deliver nothing either way: to the others its processor is dead."""
    bus.sent.clear()
    bus.received.clear()
    try:
        yield
    finally:
        bus.sent.set()
        bus.received.set()


async def test_a_processor_that_dies_before_it_may_begin_is_replaced(memory: MemoryBus, route: Completions) -> None:
    dead, alive, caller = CountingLlm(), CountingLlm(), Caller()
    dying = NetworkBus(memory)
    async with (
        Requestor(NetworkBus(memory), TOPICS, timing=QUICK) as requestor,
        Processor(dying, TOPICS, dead, (route,), timing=QUICK, grace=0.0),
    ):
        reading = asyncio.create_task(read(requestor, route, BeginPermit(caller.check)))
        await caller.asked.wait()
        with cut_off(dying):
            async with Processor(NetworkBus(memory), TOPICS, alive, (route,), timing=QUICK):
                await until(lambda: not any(stream.attempt.processor for stream in requestor._streams.values()))
                caller.may.set()
                assert await reading == "0 1 2 "
            assert (len(dead.requests), len(alive.requests)) == (0, 1)


async def test_what_a_dead_processor_may_have_begun_fails_and_is_not_begun_again(
    memory: MemoryBus, route: Completions
) -> None:
    dead, alive, caller = CountingLlm(), CountingLlm(), Caller()
    dead.step = asyncio.Semaphore(0)
    caller.may.set()
    dying = NetworkBus(memory)
    async with (
        Requestor(NetworkBus(memory), TOPICS, timing=QUICK) as requestor,
        Processor(dying, TOPICS, dead, (route,), timing=QUICK, grace=0.0),
    ):
        reading = asyncio.create_task(read(requestor, route, BeginPermit(caller.check)))
        await dead.started.wait()
        with cut_off(dying):
            async with Processor(NetworkBus(memory), TOPICS, alive, (route,), timing=QUICK):
                with pytest.raises(Unavailable, match="died"):
                    await reading
                assert not alive.requests


async def test_what_a_processor_has_begun_when_it_leaves_is_told_as_begun(
    memory: MemoryBus, route: Completions
) -> None:
    llm, caller = SteppedLlm(), Caller()
    caller.may.set()
    async with Requestor(memory, TOPICS) as requestor:
        async with Processor(memory, TOPICS, llm, (route,), grace=0.0):
            permit = BeginPermit(caller.check)
            reading = asyncio.create_task(read(requestor, route, permit))
            await llm.started.wait()
        with pytest.raises(Unavailable, match="shuts down"):
            await reading
    # So its caller does not take it for one that was refused.
    assert (permit.begun, permit.works, len(llm.requests)) == (True, True, 1)


class WholeProcessor(Processor):
    """Of a version that takes no requests in parts."""

    @override
    def _describe(self) -> Presence:
        return replace(super()._describe(), request_bytes=0)


async def test_a_processor_that_would_begin_at_once_is_not_asked(memory: MemoryBus, route: Completions) -> None:
    llm, permit = CountingLlm(), BeginPermit(Caller().check)
    async with WholeProcessor(memory, TOPICS, llm, (route,)), Requestor(memory, TOPICS) as requestor:
        with pytest.raises(Unavailable, match="upgrade"):
            await read(requestor, route, permit)
    assert (permit.begun, llm.requests) == (False, [])


async def test_a_caller_that_leaves_while_it_is_asked_leaves_nothing_behind(
    memory: MemoryBus, route: Completions
) -> None:
    llm, caller = CountingLlm(), Caller()
    async with Processor(memory, TOPICS, llm, (route,)), Requestor(memory, TOPICS) as requestor:
        reading = asyncio.create_task(read(requestor, route, BeginPermit(caller.check)))
        await caller.asked.wait()
        reading.cancel()
        await asyncio.wait([reading])
        caller.may.set()
        assert await read(requestor, route, BeginPermit(caller.check)) == "0 1 2 "
    assert len(llm.requests) == 1
