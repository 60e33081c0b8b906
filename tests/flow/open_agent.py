"""A gateway that really listens, on the memory bus, with an agent service behind it."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from aiohttp import ClientSession

from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_schema import AGENT

TOPICS = CONFIG.topics
ROUTE = Route("default", AGENT, TOPICS.request("default", AGENT.name), TOPICS.response("default", AGENT.name), False)


@dataclass
class OpenedAgent:
    """What a test needs of it."""

    gateway: Gateway
    agent: ScriptedAgent
    http: ClientSession


@asynccontextmanager
async def open_agent(
    agent: ScriptedAgent | None = None, config: GatewayConfig = ON_ANY_PORT
) -> AsyncIterator[OpenedAgent]:
    """Everything in one process; the client's base URL is the gateway's."""
    agent = agent or ScriptedAgent()
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, TOPICS, agent, (ROUTE,), grace=0.05),
        Requestor(bus, TOPICS) as requestor,
        Gateway(config, requestor, (ROUTE,)) as gateway,
        ClientSession(gateway.url) as http,
    ):
        yield OpenedAgent(gateway, agent, http)
