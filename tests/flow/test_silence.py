"""Processes that fall silent: every stream has its end, and a request that silences two of them is the last."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor, ResponseStream
from tg_base.llm import LlmChunk, LlmService
from tg_base.protocol import HeartbeatTiming, Presence, Route
from tg_base.server import Processor
from tg_schema import (
    COMMON_FEATURES,
    TEXT_COMPLETION,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    decode,
    encode,
)
from tg_schema.errors import BadRequest, Unavailable
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
        release(it.llm.step, STREAMS * WINDOW_CHUNKS)
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
    llm = CountingLlm()
    llm.step = asyncio.Semaphore(1)
    async with (
        aclosing(MemoryBus()) as bus,
        Requestor(bus, TOPICS, timing=QUICK) as requestor,
        Processor(bus, TOPICS, llm, (ROUTE,), timing=HeartbeatTiming(interval=600)),
        LlmClient(requestor, ROUTE).stream(TextCompletionRequest(prompt="2", streaming=True)) as responses,
    ):
        assert (await anext(responses)).response == "0 "
        await asyncio.sleep(3 * QUICK.dead_after)
        llm.step.release()
        assert await ended(responses) is None


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


HARMFUL = "hold the loop"


class HeldLlm(LlmService):
    """Answers at once; but over `HARMFUL` its process falls silent in a moment, as one whose event loop is held.

    Args:
        network: of its process.
        after: seconds until then.
    """

    features = COMMON_FEATURES

    def __init__(self, network: NetworkBus, after: float) -> None:
        super().__init__("held")
        self._network = network
        self._after = after
        self.requests: list[str] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request.prompt or "")
        if request.prompt == HARMFUL:
            await asyncio.sleep(self._after)
            self.hold()
        elif request.prompt == "wait":
            await asyncio.Event().wait()
        yield LlmChunk(text="done", finish_reason="stop")

    def hold(self) -> None:
        """Let its process fall silent, and hear nothing."""
        self._network.sent.clear()
        self._network.received.clear()

    def go_on(self) -> None:
        """Let it speak and hear again."""
        self._network.sent.set()
        self._network.received.set()


@dataclass
class Line:
    requestor: Requestor
    client: LlmClient
    bus: MemoryBus
    llms: list[HeldLlm] = field(default_factory=list)
    processes: list[AsyncExitStack] = field(default_factory=list)

    @property
    def silenced(self) -> int:
        """Processors that were asked what silences them."""
        return sum(HARMFUL in llm.requests for llm in self.llms)


@asynccontextmanager
async def line(processors: int, after: float = 0.0, capacity: int = 64) -> AsyncIterator[Line]:
    """Each processor is a process of its own."""
    async with aclosing(MemoryBus()) as bus, AsyncExitStack() as stack:
        requestor = await stack.enter_async_context(Requestor(NetworkBus(bus), TOPICS))
        line = Line(requestor, LlmClient(requestor, ROUTE), bus)
        for _ in range(processors):
            network = NetworkBus(bus)
            llm = HeldLlm(network, after)
            llm.capacity = capacity
            line.llms.append(llm)
            process = await stack.enter_async_context(AsyncExitStack())
            await process.enter_async_context(Processor(network, TOPICS, llm, (ROUTE,), grace=0.0))
            process.callback(llm.go_on)
            line.processes.append(process)
        await until(lambda: len(requestor.presence.serving(ROUTE.request)) == processors)
        # So that it is known how old what comes is, and a fresh request begins at once.
        await asyncio.sleep(5)
        yield line


@pytest.mark.parametrize("after", [0.0, 0.05, 0.3, 2.0])
@in_virtual_time
async def test_what_silences_two_processors_is_refused_and_kept(after: float) -> None:
    async with line(4, after) as it, it.bus.subscribe(TOPICS.dead_letter(ROUTE.request), None) as dead:
        with pytest.raises(BadRequest, match="2 processors fell silent"):
            await it.client.request("", HARMFUL, timeout=60)
        letter = await anext(dead)
        assert decode(TextCompletionRequest, letter.body).prompt == HARMFUL
        assert letter.properties["reason"].startswith("2 processors fell silent")
        assert it.silenced == 2
        assert await it.client.request("", "well") == "done"


@in_virtual_time
async def test_soon_after_a_death_too() -> None:
    """What waits is then published again sooner than a process counts as dead."""
    async with line(6) as it:
        for silenced in (2, 4):
            with pytest.raises(BadRequest, match="2 processors fell silent"):
                await it.client.request("", HARMFUL, timeout=60)
            assert it.silenced == silenced
            for llm, process in zip(it.llms, it.processes, strict=True):
                if HARMFUL in llm.requests:
                    await process.aclose()
            # What they said late, as they went, is no sign of life for the next one.
            await asyncio.sleep(5)


@in_virtual_time
async def test_what_waits_behind_it_is_not_blamed() -> None:
    async with line(3, capacity=1) as it, asyncio.TaskGroup() as group:
        held = [group.create_task(it.client.request("", "wait", timeout=60)) for _ in it.llms]
        await until(lambda: sum(len(llm.requests) for llm in it.llms) == len(it.llms))
        await asyncio.sleep(2)
        waiting = group.create_task(it.client.request("", "well", timeout=60))
        for llm in it.llms[:2]:
            await asyncio.sleep(3)
            llm.hold()
        await asyncio.sleep(10)
        for one in held:
            one.cancel()
        assert await waiting == "done"
