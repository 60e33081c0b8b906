"""What stands behind the doors: a gateway that really listens, a bus, and a model that fails on command."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import ClientSession

from tests.door_matrix.door import Door
from tests.door_matrix.visit import MODEL, Visit, visiting
from tests.fakes.unreliable_llm import UnreliableLlm
from tests.flow.narrow_gateway import OFTEN
from tests.flow.open_gateway import ON_ANY_PORT
from tests.until import until
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, TextCompletionConfig
from tg_base.llm import LlmService
from tg_base.protocol import HeartbeatTiming
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_gateway.app import Gateway

PACE_SECONDS: Final = 0.5


@dataclass
class Stage:
    """What a cell needs of it.

    Attributes:
        pace: seconds between two words of a model that speaks slowly: if it is left within them, it says no other one.
    """

    gateway: Gateway
    http: ClientSession
    flow: str
    llm: UnreliableLlm
    pace: float

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for raw connections."""
        return "127.0.0.1", int(self.gateway.url.rsplit(":", 1)[1].strip("/"))

    def visit(
        self, door: Door, question: str, *, model: str = MODEL, key: str | None = None, word: str | None = None
    ) -> AbstractAsyncContextManager[Visit]:
        """A client that asks through a door."""
        return visiting(door, self.http, self.flow, question, model=model, key=key, word=word)

    async def ask(
        self, door: Door, question: str, *, model: str = MODEL, key: str | None = None, word: str | None = None
    ) -> Visit:
        """A client that reads to the end."""
        async with self.visit(door, question, model=model, key=key, word=word) as visit:
            await visit.finish()
        return visit


@asynccontextmanager
async def open_stage(
    *,
    bus: Bus | None = None,
    config: GatewayConfig = ON_ANY_PORT,
    limits: Limits | None = None,
    queue: int | None = None,
    provider: LlmService | None = None,
    timing: HeartbeatTiming = OFTEN,
    pace: float = PACE_SECONDS,
) -> AsyncIterator[Stage]:
    """Everything in one process, on topics of its own, ready: the gateway knows who serves.

    `provider` answers in place of the model; a bus that is given is not closed.
    """
    flow, llm, opened = f"f-{uuid.uuid4().hex[:8]}", UnreliableLlm(MODEL), bus or MemoryBus()
    llm.capacity = 256 if queue is None else 1
    flows = Config(flows={flow: {"text-completion": TextCompletionConfig(model=MODEL)}})
    routes = tuple(replace(route, queue=queue) for route in flows.routes("text-completion"))
    queues = tuple(route.request for route in routes)
    async with (
        Processor(opened, flows.topics, provider or llm, routes, models=(MODEL,), timing=timing, grace=0.05),
        Requestor(opened, flows.topics, timing=timing, queues=queues) as requestor,
        Gateway(config, requestor, routes, limits=limits) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until(lambda: bool(requestor.presence.serving(queues[0])))
        yield Stage(gateway, http, flow, llm, pace)
    if bus is None:
        await opened.aclose()


OpenStage = Callable[..., AbstractAsyncContextManager[Stage]]
"""`open_stage`, or what stands in its place on another bus."""
