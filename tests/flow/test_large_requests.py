"""Requestor -> processor: a request over the limit of a message travels in parts, whatever happens on the way."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.network_bus import NetworkBus
from tests.fakes.passing_bus import PassingBus
from tests.fakes.typed_clients import LlmClient
from tests.observed_calls import observe_calls
from tests.until import until
from tg_base.bus import MAX_MESSAGE_BYTES as USUAL_BYTES
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import MAX_REQUEST_BYTES, WINDOW_BYTES, HeartbeatTiming, Route
from tg_base.runtime import MAX_QUICK_BYTES, running
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, decode
from tg_schema.errors import TooLarge
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.2)
MAX_MESSAGE_BYTES = 100_000
LARGE_SYSTEM = "é" * (3 * WINDOW_BYTES // 2)
Completions = Route[TextCompletionRequest, TextCompletionResponse]
Properties = dict[str, str]


class NarrowBus(PassingBus):
    """Takes small messages alone, and does with the parts of requests what a test wants."""

    def __init__(
        self, bus: Bus, *, told: int = MAX_MESSAGE_BYTES, most: int = MAX_MESSAGE_BYTES, learns: bool = True
    ) -> None:
        super().__init__(bus)
        self._told, self._most, self._learns = told, most, learns
        self.offsets: list[int] = []
        self.asked: list[Properties] = []
        self.drop: set[int] = set()
        self.stop_at: int | None = None
        self.stopped = asyncio.Event()

    @property
    @override
    def max_message(self) -> int:
        return self._told

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if len(body) > self._most:
            if self._learns:
                self._told = self._most
            raise TooLarge(f"a message holds at most {self._most} bytes")
        if "size" in properties:
            self.asked.append(dict(properties))
        if "offset" in properties:
            offset = int(properties["offset"])
            self.offsets.append(offset)
            if self.stop_at is not None and offset >= self.stop_at:
                self.stopped.set()
                return
            if offset in self.drop:
                self.drop.remove(offset)
                return
        await super().publish(topic, body, properties)


@pytest.fixture
def route() -> Completions:
    return Route("large", TEXT_COMPLETION, TOPICS.request("large", "t"), TOPICS.response("large", "t"))


def large(prompt: str = "3") -> TextCompletionRequest:
    return TextCompletionRequest(LARGE_SYSTEM, prompt, streaming=True)


@pytest.mark.parametrize(
    ("told", "most"),
    [
        (MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES),
        (100 * MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES),
        # The usual limit: each window is one message, since a broker drops what it cannot write to the reader at once.
        (USUAL_BYTES, USUAL_BYTES),
    ],
)
async def test_a_large_request_arrives_whole_and_small_ones_as_they_did(
    route: Completions, told: int, most: int
) -> None:
    bus, llm = NarrowBus(MemoryBus(), told=told, most=most), CountingLlm()
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        assert await LlmClient(requestor, route).request(LARGE_SYSTEM, "3") == "0 1 2 "
        assert await LlmClient(requestor, route).request("small", "3") == "0 1 2 "
    assert [request.system for request in llm.requests] == [LARGE_SYSTEM, "small"]
    (size,) = (int(asked["size"]) for asked in bus.asked)
    assert bus.offsets == [*range(0, size, min(most, WINDOW_BYTES))]


async def test_parts_fit_a_broker_whose_limit_the_bus_does_not_know(route: Completions) -> None:
    """As where nobody may ask for the limit in any namespace."""
    bus, llm = NarrowBus(MemoryBus(), told=USUAL_BYTES, most=300_000, learns=False), CountingLlm()
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        assert await LlmClient(requestor, route).request(LARGE_SYSTEM, "3") == "0 1 2 "
    (size,) = (int(asked["size"]) for asked in bus.asked)
    assert bus.offsets == [*range(0, size, WINDOW_BYTES // 8)]


async def test_a_part_that_is_lost_is_asked_for_again(route: Completions) -> None:
    bus, llm = NarrowBus(MemoryBus()), CountingLlm()
    bus.drop = {0, MAX_MESSAGE_BYTES}
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        assert await LlmClient(requestor, route).request(LARGE_SYSTEM, "3") == "0 1 2 "
    assert [request.system for request in llm.requests] == [LARGE_SYSTEM]
    assert bus.offsets.count(0) == 2


async def test_a_processor_that_dies_while_parts_are_sent_is_replaced(route: Completions) -> None:
    memory = MemoryBus()
    dead, alive = CountingLlm(), CountingLlm()
    dying, asking = NetworkBus(memory), NarrowBus(NetworkBus(memory))
    asking.stop_at = WINDOW_BYTES
    async with (
        Requestor(asking, TOPICS, timing=QUICK) as requestor,
        Processor(dying, TOPICS, dead, (route,), timing=QUICK, grace=0.0),
    ):
        async with LlmClient(requestor, route).stream(large()) as responses:
            await asking.stopped.wait()
            dying.sent.clear()
            dying.received.clear()
            asking.stop_at = None
            async with Processor(NetworkBus(memory), TOPICS, alive, (route,), timing=QUICK):
                assert "".join([record.response or "" async for record in responses]) == "0 1 2 "
        dying.sent.set()
        dying.received.set()
    assert not dead.requests
    assert [request.system for request in alive.requests] == [LARGE_SYSTEM]
    assert [int(asked["attempt"]) for asked in asking.asked] == sorted(
        {int(asked["attempt"]) for asked in asking.asked}
    )
    await memory.aclose()


async def test_a_request_that_is_left_while_parts_are_sent_is_not_begun(route: Completions) -> None:
    bus, llm = NarrowBus(MemoryBus()), CountingLlm()
    bus.stop_at = WINDOW_BYTES
    async with Processor(bus, TOPICS, llm, (route,)) as processor, Requestor(bus, TOPICS) as requestor:
        async with LlmClient(requestor, route).stream(large()):
            await bus.stopped.wait()
            assert processor._running
        await until(lambda: not processor._running)
        assert not requestor._sender._tasks
        assert not processor.host.bodies._bodies
        assert await LlmClient(requestor, route).request("", "3") == "0 1 2 "
    assert [request.prompt for request in llm.requests] == ["3"]


async def test_a_large_request_that_may_be_a_redelivery_is_confirmed_first(route: Completions) -> None:
    bus, llm = NarrowBus(MemoryBus()), CountingLlm()
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        assert await LlmClient(requestor, route).request(LARGE_SYSTEM, "3") == "0 1 2 "
        sent = len(bus.offsets)
        # As a broker delivers it again: it has the same properties, and nobody waits for it any more.
        await bus.publish(route.request, b"", bus.asked[0] | {"attempt": "1"})
        assert await LlmClient(requestor, route).request("", "3") == "0 1 2 "
    assert len(bus.offsets) == sent
    assert len(llm.requests) == 2


async def test_several_large_requests_travel_side_by_side(route: Completions) -> None:
    bus, llm = NarrowBus(MemoryBus()), CountingLlm()
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        client = LlmClient(requestor, route)
        answers = await asyncio.gather(*(client.request(LARGE_SYSTEM, "3") for _ in range(8)))
    assert answers == ["0 1 2 "] * 8


async def test_what_is_larger_than_parts_may_be_is_refused_before_it_is_queued(route: Completions) -> None:
    bus, llm = NarrowBus(MemoryBus()), CountingLlm()
    async with Processor(bus, TOPICS, llm, (route,)), Requestor(bus, TOPICS) as requestor:
        with pytest.raises(TooLarge):
            await LlmClient(requestor, route).request("x" * MAX_REQUEST_BYTES, "3")
    assert not bus.asked
    assert not llm.requests


async def test_requests_that_come_together_are_read_in_turns(route: Completions) -> None:
    turn = 0
    read_in: list[int] = []

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def note(arguments: Mapping[str, Any]) -> None:
        if arguments["kind"] is TextCompletionRequest:
            read_in.append(turn)

    bus, llm = MemoryBus(), CountingLlm()
    async with (
        Processor(bus, TOPICS, llm, (route,)),
        Requestor(bus, TOPICS) as requestor,
        running(count_turns()),
    ):
        client = LlmClient(requestor, route)
        with observe_calls(decode, note):
            answers = await asyncio.gather(*(client.request("x" * 2 * MAX_QUICK_BYTES, "3") for _ in range(8)))
    assert answers == ["0 1 2 "] * 8
    assert len(read_in) == len({*read_in}) == 8
