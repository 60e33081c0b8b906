"""Calls of models whose processors write no record: the asker does, for plain peers and for processes that died."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import SteppedLlm
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.passing_bus import RemoteBus
from tests.fakes.refusing_bus import RefusingBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.client.call_account import MAX_KEPT_BYTES
from tg_base.llm import LlmChunk
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server import Processor
from tg_base.server.usage_account import FAILED_CALLS
from tg_base.telemetry import trace
from tg_schema import (
    TEXT_COMPLETION,
    Error,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    Usage,
    decode,
    encode,
)
from tg_schema.errors import BadRequest, BusError, RateLimited, Unavailable
from tg_schema.topics import Topics
from tg_schema.usage_record import Payer, UsageRecord

TOPICS = Topics()
TIMING = HeartbeatTiming(interval=0.1)
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"), model="m")
PLAIN = Route("p", TEXT_COMPLETION, TOPICS.request("p", "t"), TOPICS.response("p", "t"), plain=True)


class LongLlm(SteppedLlm):
    """Says many words at once."""

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        yield TextCompletionResponse(response="word " * 50_000, in_token=5, end_of_stream=True)


class RetriedLlm(SteppedLlm):
    """Its provider refuses the first call."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        if not self.started.is_set():
            self.started.set()
            raise RateLimited("slow down", retry_after=0)
        async for chunk in super().generate_content_stream(request):
            yield chunk


class FetchingBus(MortalBus):
    """Dies when it asks for a request in parts."""

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        if b'"fetch"' in body:
            self.kill()


class World:
    """An asker of models, each in a process of its own that a test may kill, and what is written of their calls."""

    def __init__(self, stack: AsyncExitStack, bus: MemoryBus, requestor: Requestor) -> None:
        self._stack = stack
        self.bus = bus
        self.requestor = requestor
        self.client = LlmClient(requestor, ROUTE)
        self.records: list[UsageRecord] = []

    async def serve(
        self, words: int = 10**6, llm: SteppedLlm | None = None, mortal: MortalBus | None = None
    ) -> tuple[SteppedLlm, MortalBus]:
        """Another processor, whose model says so many words for now."""
        mortal, llm = mortal or MortalBus(self.bus), llm or SteppedLlm()
        llm.step = asyncio.Semaphore(words)
        await self._stack.enter_async_context(
            Processor(mortal, TOPICS, llm, (ROUTE,), models=("m",), timing=TIMING, grace=0.01)
        )
        await until(lambda: self.requestor.presence.serving(ROUTE.request))
        return llm, mortal

    async def written(self, count: int) -> list[UsageRecord]:
        """All records, once there are so many and nothing more comes of what is known dead."""
        await until(lambda: len(self.records) >= count)
        await asyncio.sleep(8 * TIMING.interval)
        assert len(self.records) == count, "\n".join(map(str, self.records))
        return self.records


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with aclosing(MemoryBus()) as bus, opened(bus) as world:
        trace.enter(trace.Span.at_door("r-1", None, "native"))
        trace.name_caller(None, encode(Payer("alice", "acme")).decode())
        yield world
    trace.enter(None)


@asynccontextmanager
async def opened(bus: MemoryBus) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        deliveries = await stack.enter_async_context(bus.subscribe(TOPICS.usage, "usage"))
        requestor = Requestor(RemoteBus(bus), TOPICS, timing=TIMING)
        world = World(stack, bus, await stack.enter_async_context(requestor))

        async def listen() -> None:
            async for delivery in deliveries:
                world.records += [decode(UsageRecord, line) for line in delivery.body.split(b"\n")]

        listening = asyncio.create_task(listen())
        stack.callback(listening.cancel)
        yield world


async def test_a_process_that_is_killed_in_the_middle_of_an_answer(world: World) -> None:
    llm, mortal = await world.serve(0)
    async with world.client.stream(TextCompletionRequest(prompt="999", system="s" * 37, streaming=True)) as stream:
        for number in range(3):
            llm.step.release()
            assert (await anext(stream)).response == f"{number} "
        mortal.kill()
        with pytest.raises(Unavailable, match="died in the middle"):
            await anext(stream)
    (record,) = await world.written(1)
    assert record == UsageRecord(
        stream.id, 1, unique=True, request="r-1", payer=Payer("alice", "acme"), door="native", flow="f", model="m",
        provider="SteppedLlm", upstream_model="counting", usage=Usage(10, 3), estimated=True, outcome="failed",
        queued_at=record.queued_at, began_at=record.queued_at, ended_at=record.ended_at, error="unavailable",
    )  # fmt: skip
    assert 0 <= record.ended_at - record.queued_at < 1000 * TIMING.dead_after, "the last record, not the death"


async def test_a_process_that_is_killed_in_an_answer_that_was_adopted_twice(world: World) -> None:
    llm, mortal = await world.serve(2)
    request = TextCompletionRequest(prompt="999", system="s" * 37, streaming=True)
    async with AsyncExitStack() as stack:
        async with world.requestor.stream(ROUTE, request, timeout=20, kept=True) as stream:
            await until(lambda: stream.settled and stream.origin is not None)
            await anext(stream)
            origin, taken = stream.origin, stream.taken
            stream.left = True
        for words in (0, 3):
            other = Requestor(RemoteBus(world.bus), TOPICS, queues=(ROUTE.request,), timing=TIMING)
            await stack.enter_async_context(other)
            assert origin is not None
            async with other.adopt(ROUTE, request, origin, taken, timeout=20) as adopted:
                await until(partial(other.presence.serving, ROUTE.request))
                for _ in range(words):
                    llm.step.release()
                    await anext(adopted)
                origin, taken, adopted.left = adopted.origin, adopted.taken, not words
                if words:
                    mortal.kill()
                    with pytest.raises(Unavailable):
                        await anext(adopted)
        (record,) = await world.written(1)
    assert (record.stream, record.attempt, record.call) == (stream.id, 1, 1)
    assert (record.payer.key, record.provider, record.usage) == ("alice", "SteppedLlm", Usage(10, 5))


async def test_a_process_that_is_killed_in_its_retry(world: World) -> None:
    llm, mortal = await world.serve(0, RetriedLlm())
    async with world.client.stream(TextCompletionRequest(prompt="999", streaming=True)) as stream:
        llm.step.release()
        assert (await anext(stream)).response
        await until(lambda: world.records)
        mortal.kill()
        with pytest.raises(Unavailable):
            await anext(stream)
    refused, died = await world.written(2)
    assert (refused.call, refused.error, refused.usage) == (FAILED_CALLS + 1, "rate-limited", Usage())
    assert (died.call, died.error, died.usage, died.attempt) == (1, "unavailable", Usage(1, 1), refused.attempt)


async def test_a_process_that_is_killed_before_its_record_has_left(world: World) -> None:
    _, mortal = await world.serve(5)
    whole = await world.client.call(TextCompletionRequest(prompt="4"))
    left = world.client.stream(TextCompletionRequest(prompt="4", streaming=True))
    async with left as stream:
        assert (await anext(stream)).response
    mortal.kill()
    complete, other = await world.written(2)
    assert (complete.usage, complete.estimated, complete.outcome) == (Usage(7, 4), False, "complete")
    assert whole.usage == complete.usage
    assert (other.outcome, other.error, other.usage.in_token) == ("left", None, 1)


async def test_what_is_known_of_a_large_answer_outlives_it(world: World) -> None:
    _, mortal = await world.serve(llm=LongLlm())
    size = len((await world.client.call(TextCompletionRequest(prompt="9"))).response or "")
    # Each call is kept for a while; with vectors, many would fill the memory.
    ((attempt, _),) = (call for calls in world.requestor._calls._over for call in calls)
    assert len(attempt.last) <= MAX_KEPT_BYTES < size
    mortal.kill()
    (record,) = await world.written(1)
    assert (record.outcome, record.usage, record.estimated) == ("complete", Usage(5, size // 4), True)


async def test_an_attempt_that_died_without_output_is_a_call_of_its_own(world: World) -> None:
    llm, mortal = await world.serve(0)
    asking = asyncio.create_task(world.client.call(TextCompletionRequest(prompt="2")))
    await llm.started.wait()
    await world.serve()
    mortal.kill()
    assert (await asking).response == "0 1 "
    died, answered = sorted(await world.written(2), key=lambda record: record.attempt)
    assert (died.attempt, died.outcome, died.usage, died.estimated) == (1, "failed", Usage(1, 0), True)
    assert (answered.attempt > 1, answered.outcome, answered.usage) == (True, "complete", Usage(7, 2))


@pytest.mark.parametrize("leaving", [False, True])
async def test_an_attempt_that_died_before_it_began_is_no_call(world: World, *, leaving: bool) -> None:
    llm, mortal = await world.serve(0)
    large = TextCompletionRequest(prompt="2", system="s" * world.bus.max_message, streaming=True)
    async with world.client.stream(large) as stream:
        accepted = asyncio.Event()
        stream.listen_accepted(accepted.set)
        await accepted.wait()
        await llm.started.wait()
        await world.serve(mortal=FetchingBus(world.bus))
        mortal.kill()
        if leaving:
            await until(lambda: world.requestor._streams[stream.id].attempt.fetching)
        else:
            with pytest.raises(BadRequest, match="2 processors fell silent"):
                await anext(stream)
    (record,) = await world.written(1)
    assert record.attempt == 1, "the first processor had begun, and the second one had not"


async def test_what_no_provider_was_asked_for_is_no_call(world: World) -> None:
    _, mortal = await world.serve()
    with pytest.raises(TgError, match="no model of that name"):
        await world.client.call(TextCompletionRequest(prompt="1", model="other"))
    await world.client.call(TextCompletionRequest(operation="list-models"))
    await world.client.call(TextCompletionRequest(prompt="1"))
    mortal.kill()
    (record,) = await world.written(1)
    assert record.usage == Usage(7, 1)


TEXT = TextCompletionResponse(response="word " * 8, model="theirs")
PIECE = TextCompletionResponse(response="word ")
COUNTED = TextCompletionResponse(response="word", model="theirs", in_token=5, out_token=9, end_of_stream=True)


@pytest.mark.parametrize(
    ("answer", "usage", "estimated", "error"),
    [
        ((TEXT, COUNTED), Usage(5, 9), False, None),
        ((TextCompletionResponse(response="word " * 8, end_of_stream=True),), Usage(3, 10), True, None),
        ((TextCompletionResponse(error=Error("rate-limited", "")),), Usage(), False, "rate-limited"),
        ((PIECE, PIECE, PIECE, TextCompletionResponse(error=Error("timeout", ""))), Usage(3, 3), True, "timeout"),
    ],
)
async def test_an_answer_of_a_plain_peer(
    world: World, answer: tuple[TextCompletionResponse, ...], usage: Usage, *, estimated: bool, error: str | None
) -> None:
    client = LlmClient(world.requestor, PLAIN)
    async with world.bus.subscribe(PLAIN.request, "theirs") as requests:
        asking = asyncio.create_task(client.call(TextCompletionRequest(prompt="word " * 2, streaming=True)))
        name = (await anext(requests)).properties["id"]
        for each in answer:
            await world.bus.publish(PLAIN.response, encode(each), {"id": name})
        await asyncio.wait([asking])
        assert (asking.exception() is None) == (error is None)
    (record,) = await world.written(1)
    assert (record.stream, record.flow, record.payer.key) == (name, "p", "alice")
    assert record.upstream_model == ("theirs" if answer[-1].model else "")
    assert (record.usage, record.estimated, record.error) == (usage, estimated, error)
    assert record.outcome == ("complete" if error is None else "failed")


async def test_a_plain_peers_answer_that_is_left(world: World) -> None:
    async with world.bus.subscribe(PLAIN.request, "theirs") as requests:
        request = TextCompletionRequest(prompt="word " * 2, streaming=True)
        async with LlmClient(world.requestor, PLAIN).stream(request) as stream:
            name = (await anext(requests)).properties["id"]
            await world.bus.publish(PLAIN.response, encode(TEXT), {"id": name})
            await anext(stream)
    (record,) = await world.written(1)
    assert (record.outcome, record.usage, record.estimated) == ("left", Usage(3, 10), True)


async def test_what_a_plain_peer_was_not_sent_is_no_call(world: World) -> None:
    refusing = RefusingBus(world.bus, PLAIN.request)
    async with Requestor(RemoteBus(refusing), TOPICS, timing=TIMING) as requestor:
        with pytest.raises(BusError):
            await LlmClient(requestor, PLAIN).call(TextCompletionRequest(prompt="word " * 2))
    await world.written(0)
