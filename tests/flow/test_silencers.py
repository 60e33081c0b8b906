"""A request that makes processors fall silent: the second one is the last, and what waits behind it is not blamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.llm import LlmChunk, LlmService
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import COMMON_FEATURES, TEXT_COMPLETION, TextCompletionRequest, decode
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics

TOPICS = Topics()
ROUTE = Route("f", TEXT_COMPLETION, TOPICS.request("f", "t"), TOPICS.response("f", "t"))
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
    bus = MemoryBus()
    async with AsyncExitStack() as stack:
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
    await bus.aclose()


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
