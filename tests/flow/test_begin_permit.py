"""Requestor -> processor: what needs its caller's permit is begun after that, and at most once, whoever dies."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from msgspec.structs import replace
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.network_bus import NetworkBus
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import BeginPermit, Requestor
from tg_base.protocol import HeartbeatTiming, Presence, Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import Unavailable
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.2)
REQUEST = TextCompletionRequest(prompt="3", streaming=True)
LARGE = TextCompletionRequest(system="x" * 3_000_000, prompt="3", streaming=True)
Completions = Route[TextCompletionRequest, TextCompletionResponse]


@pytest.fixture
def route() -> Completions:
    flow = uuid4().hex
    return Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))


@pytest.fixture
async def memory() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus()
    yield bus
    await bus.aclose()


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
    llm, caller = CountingLlm(), Caller()
    llm.step = asyncio.Semaphore(0)
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
