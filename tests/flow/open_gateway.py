"""A gateway that really listens, on the memory bus or on a given one, with a model and a prompt service behind it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.echo_prompt import EchoPrompt
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, PromptConfig, TextCompletionConfig
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server import Processor, Service
from tg_gateway.access import Limits
from tg_gateway.app import Gateway
from tg_gateway.dialects import Mount
from tg_gateway.mounts import load_mounts

MOUNTS = load_mounts()
FLOWS = {"default": {"text-completion": TextCompletionConfig(model="counting"), "prompt": PromptConfig()}}
CONFIG = Config(flows=FLOWS)
TEXTS = CONFIG.routes("text-completion")
PROMPTS = CONFIG.routes("prompt")
QUEUES = tuple(route.request for route in TEXTS + PROMPTS)
KEEPING_TEXTS = Config(flows={"default": {"text-completion": TextCompletionConfig(model="counting", keep=600)}}).routes(
    "text-completion"
)
"""The same, of a flow that keeps its streams."""
QUICK = HeartbeatTiming(interval=0.2)
ON_ANY_PORT = GatewayConfig(port=0, drain=0.05)


@dataclass
class Opened:
    """What a test needs of it."""

    gateway: Gateway
    llm: CountingLlm
    bus: Bus
    http: ClientSession

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for raw connections."""
        return "127.0.0.1", int(self.gateway.url.rsplit(":", 1)[1].strip("/"))


@asynccontextmanager
async def open_gateway(
    config: GatewayConfig = ON_ANY_PORT,
    *,
    limits: Limits | None = None,
    llm: CountingLlm | None = None,
    instead: Service[Any, Any] | None = None,
    timing: HeartbeatTiming | None = None,
    bus: Bus | None = None,
    mounts: Sequence[Mount] = MOUNTS,
    texts: Sequence[Route[Any, Any]] = TEXTS,
    listed: bool = False,
) -> AsyncIterator[Opened]:
    """Everything in one process; the client's base URL is the gateway's. The bus is closed with it.

    `instead` answers in place of `llm`, which then is never asked. `listed`: the gateway knows its model.
    """
    llm = llm or CountingLlm()
    bus = bus or MemoryBus()
    async with (
        Processor(bus, CONFIG.topics, instead or llm, TEXTS, models=(llm.model,), timing=timing, grace=0.05),
        Processor(bus, CONFIG.topics, EchoPrompt(), PROMPTS, timing=timing, grace=0.05),
        Requestor(bus, CONFIG.topics, timing=timing, queues=QUEUES) as requestor,
        Gateway(config, requestor, (*texts, *PROMPTS), limits=limits, mounts=mounts) as gateway,
        ClientSession(gateway.url) as http,
    ):
        if listed:
            await until_listed(http)
        yield Opened(gateway, llm, bus, http)
    await bus.aclose()


@asynccontextmanager
async def another_gateway(
    bus: Bus,
    config: GatewayConfig = ON_ANY_PORT,
    routes: tuple[Route[Any, Any], ...] = TEXTS + PROMPTS,
    limits: Limits | None = None,
) -> AsyncIterator[Gateway]:
    """One more on this bus, with a connection of its own."""
    async with (
        Requestor(bus, CONFIG.topics, queues=tuple(route.request for route in routes)) as requestor,
        Gateway(config, requestor, routes, limits=limits) as gateway,
    ):
        yield gateway


async def until_listed(http: ClientSession) -> None:
    """Until a gateway knows a model: its processors announce themselves soon after they were asked to."""
    async with asyncio.timeout(10):
        while True:
            async with http.get("api/v1/models") as response:
                if (await response.json())["models"]:
                    return
            await asyncio.sleep(0.01)
