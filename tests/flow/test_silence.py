"""Processes that fall silent and come back: every stream has its end, and nobody is taken for dead without doubt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor, ResponseStream
from tg_base.protocol import HeartbeatTiming, Presence, Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, TgError, encode
from tg_schema.errors import Unavailable
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.1)
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"))
STREAMS = 20
WINDOW_CHUNKS = 300
"""Chunks of a stream beyond what a link may have on its way unacknowledged."""

Responses = ResponseStream[TextCompletionResponse]


@dataclass
class Pipeline:
    llm: CountingLlm
    requestor: Requestor
    client: LlmClient
    theirs: NetworkBus
    ours: NetworkBus


@asynccontextmanager
async def pipeline() -> AsyncIterator[Pipeline]:
    """A processor, and a requestor, each with its own way to the broker."""
    bus, llm = MemoryBus(), CountingLlm()
    theirs, ours = NetworkBus(bus), NetworkBus(bus)
    async with (
        Processor(theirs, TOPICS, llm, (ROUTE,), timing=QUICK, grace=0.1),
        Requestor(ours, TOPICS, timing=QUICK) as requestor,
    ):
        yield Pipeline(llm, requestor, LlmClient(requestor, ROUTE), theirs, ours)
    await bus.aclose()


async def ended(responses: Responses) -> TgError | None:
    """How a stream ends."""
    try:
        async with asyncio.timeout(30):
            async for _ in responses:
                pass
    except TgError as error:
        return error
    return None


@pytest.mark.parametrize("held", [("sent",), ("received",), ("sent", "received")])
@in_virtual_time
async def test_a_requestor_that_was_silent_hears_that_its_streams_are_over(held: tuple[str, ...]) -> None:
    async with pipeline() as it:
        it.llm.step = asyncio.Semaphore(STREAMS)
        begun: list[Responses] = []

        async def read() -> TgError | None:
            async with it.client.stream(TextCompletionRequest(prompt="1000", streaming=True), timeout=600) as responses:
                await anext(responses)
                begun.append(responses)
                return await ended(responses)

        reading = [asyncio.create_task(read()) for _ in range(STREAMS)]
        while len(begun) < STREAMS:
            it.llm.step.release()
            await asyncio.sleep(0.001)
        for gate in held:
            getattr(it.ours, gate).clear()
        for _ in range(STREAMS * WINDOW_CHUNKS):
            it.llm.step.release()
        await until(it.llm.stopped.is_set)
        await asyncio.sleep(QUICK.dead_after)
        for gate in held:
            getattr(it.ours, gate).set()
        assert {type(error) for error in await asyncio.gather(*reading)} == {Unavailable}
        it.llm.step = None
        # What the processor announced meanwhile may arrive after the streams have ended.
        await until(lambda: it.requestor.presence.serving(ROUTE.request))
        assert await it.client.request("", "3") == "0 1 2 "


@in_virtual_time
async def test_within_one_process_silence_is_not_death() -> None:
    bus, llm = MemoryBus(), CountingLlm()
    llm.step = asyncio.Semaphore(1)
    async with (
        Requestor(bus, TOPICS, timing=QUICK) as requestor,
        Processor(bus, TOPICS, llm, (ROUTE,), timing=HeartbeatTiming(interval=600)),
        LlmClient(requestor, ROUTE).stream(TextCompletionRequest(prompt="2", streaming=True)) as responses,
    ):
        assert (await anext(responses)).response == "0 "
        await asyncio.sleep(3 * QUICK.dead_after)
        llm.step.release()
        assert await ended(responses) is None
    await bus.aclose()


@in_virtual_time
async def test_a_death_repeats_no_request_that_a_living_processor_has_just_taken() -> None:
    async with pipeline() as it:
        await until(lambda: len(it.requestor.presence.serving(ROUTE.request)) == 1)
        # So a request is on its way, to or from the one that lives, whenever the death is found.
        it.theirs.delay = 0.4 * QUICK.interval
        await it.ours.publish(TOPICS.presence, encode(Presence("dead", (ROUTE.request,), 0, 1)), {})
        await until(lambda: len(it.requestor.presence.serving(ROUTE.request)) == 2)
        asked = 0
        while len(it.requestor.presence.serving(ROUTE.request)) == 2:
            assert await it.client.request("", "1") == "0 "
            asked += 1
        assert len(it.llm.requests) == asked > 1
