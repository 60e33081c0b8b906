"""A model with one slot and the gateways of one bus, for responses of the tier "flex"."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.network_bus import NetworkBus
from tests.fakes.passing_bus import PassingBus
from tests.flow.background_asking import client_of
from tests.flow.narrow_gateway import OFTEN
from tests.flow.open_gateway import CONFIG, PROMPTS, QUEUES, TEXTS
from tests.flow.open_responses import MODEL
from tests.until import until
from tg_base.bus import Bus, Delivery
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor, StreamOrigin
from tg_base.client.shared_time import SharedTime
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk, ProviderOptions
from tg_base.protocol import HeartbeatTiming
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_gateway.jobs.log import END, kind_of, label_asked
from tg_schema import TextCompletionRequest
from tg_schema.errors import RateLimited

DEADLINE = 20.0
SLOWER = HeartbeatTiming(interval=0.5)
"""A dead processor is believed in for long enough to ask it."""
ONCE: dict[str, Any] = {"max_attempts": 1}
NO_PAUSE = Limits(attempt_pause=0.0)
"""Lost attempts are made again at once."""
ASKED_BEFORE = label_asked("dead", origin=StreamOrigin("gone", 1, "gone"))
"""The note of a process that has died, and whose processor has died too."""
FLEX = GatewayConfig(port=0, drain=0.05, max_wait=3600)


def make_key(token: str, requests: int = 0) -> ApiKey:
    """A key that may ask so often in a minute; 0 = as often as it likes."""
    return ApiKey(name=token, sha256=hashlib.sha256(token.encode()).hexdigest(), requests_per_minute=requests)


class OneMessageBus(PassingBus):
    """A gateway's bus that gives it one message of the flex queue.

    Attributes:
        put: the messages of the flex queue that came from this gateway.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.put: list[bytes] = []

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        if "/tg-flex-" in topic:
            self.put.append(body)
        await super().publish(topic, body, properties)

    @override
    @asynccontextmanager
    async def subscribe(
        self, topic: str, group: str | None, *, prefetch: int = 1000
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        async with super().subscribe(topic, group, prefetch=prefetch) as deliveries:
            yield self._take_one(deliveries) if "/tg-flex-" in topic else deliveries

    async def _take_one(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        yield await anext(deliveries)
        await asyncio.Event().wait()


class BusyLlm(CountingLlm):
    """Says of its first sheddable requests that there is no room for them, and of those beyond its room."""

    def __init__(self, refusals: int = 0, capacity: int = 1, room: int = 1) -> None:
        super().__init__(options=ProviderOptions(capacity=capacity))
        self.room = room
        self.step = self.steps = asyncio.Semaphore(0)
        self.refusals = refusals
        self.order: list[str] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        if request.sheddable and (self.refusals or not self.room):
            self.refusals = max(self.refusals - 1, 0)
            raise RateLimited("no room", retry_after=60.0)
        self.room -= 1
        self.order.append(request.user or "")
        try:
            async for chunk in super().generate_content_stream(request):
                yield chunk
        finally:
            self.room += 1


@dataclass
class WaitingGateways:
    """A model with one slot, and the gateways of one bus."""

    llm: BusyLlm
    bus: Bus
    exit: AsyncExitStack
    timing: HeartbeatTiming = OFTEN
    gateways: list[AsyncExitStack] = field(default_factory=list)
    requestors: list[Requestor] = field(default_factory=list)
    edited: list[Gateway] = field(default_factory=list)

    async def open_gateway(
        self, config: GatewayConfig = FLEX, limits: Limits = NO_PAUSE, ahead: float = 0.0
    ) -> AsyncOpenAI:
        """One more, which knows the model, with a clock that is so far ahead; a client of it."""
        stack = await self.exit.enter_async_context(AsyncExitStack())
        self.gateways.append(stack)
        requestor = await stack.enter_async_context(
            Requestor(
                self._bus_of_one(ahead),
                CONFIG.topics,
                queues=QUEUES,
                timing=self.timing,
                time=SharedTime(lambda: time.time() + ahead),
            )
        )
        self.requestors.append(requestor)
        gateway = await stack.enter_async_context(Gateway(config, requestor, TEXTS + PROMPTS, limits=limits))
        self.edited.append(gateway)
        await until(lambda: bool(requestor.presence.serving(TEXTS[0].request)))
        return await stack.enter_async_context(client_of(gateway))

    def _bus_of_one(self, ahead: float) -> Bus:
        if not ahead:
            return self.bus
        bus = NetworkBus(self.bus)
        bus.clock_ahead = ahead
        return bus

    async def occupy(self, client: AsyncOpenAI, name: str = "work") -> "asyncio.Task[Any]":
        """Give the model work that ends with its one step."""
        self.llm.started.clear()
        work = asyncio.create_task(client.responses.create(model=MODEL, input="1", user=name))
        await asyncio.wait_for(self.llm.started.wait(), DEADLINE)
        return work

    async def finish(self, work: "asyncio.Task[Any]", steps: int = 1) -> None:
        """Let the model take so many steps, of which the first is that of the work, and await its end."""
        release(self.llm.steps, steps)
        await work


def serve(bus: Bus, llm: BusyLlm, timing: HeartbeatTiming = OFTEN) -> Processor:
    """A processor, to be entered."""
    return Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), timing=timing, grace=0.05)


def count_returned() -> float:
    """How many have gone back to the flex queue so far, since there was no room."""
    return count_waited("returned")


def count_waited(event: str) -> float:
    """How often this has become of one so far."""
    labels = {"service": "text-completion", "event": event}
    return REGISTRY.get_sample_value("tg_band_total", labels) or 0


@asynccontextmanager
async def open_gateways(refusals: int = 0, capacity: int = 1, room: int = 1) -> AsyncIterator[WaitingGateways]:
    """No gateway is open yet."""
    llm = BusyLlm(refusals, capacity, room)
    async with (
        aclosing(MemoryBus()) as bus,
        serve(bus, llm),
        AsyncExitStack() as stack,
    ):
        yield WaitingGateways(llm, bus, stack)


async def ask(client: AsyncOpenAI, name: str, *, model: str = MODEL, **fields: Any) -> Any:
    """A response that may wait."""
    return await client.responses.create(
        model=model, input="1", user=name, background=True, service_tier="flex", **fields
    )


async def until_end(bus: Bus, name: str) -> None:
    """Until the log has one, whether it counts or not."""
    topic = CONFIG.topics.kept(name)
    head, *_ = await bus.read(topic)
    async with asyncio.timeout(DEADLINE), bus.follow(topic, head.position) as entries:
        async for entry in entries:
            if kind_of(entry) == END:
                return
