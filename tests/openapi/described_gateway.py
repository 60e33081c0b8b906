"""A gateway with everything that the document's examples ask for: a model, a template, an agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import ClientSession

from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.open_gateway import until_listed
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import Config, GatewayConfig, PromptConfig, TextCompletionConfig
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.protocol import Route
from tg_base.server import Processor, Service
from tg_flow.prompt import PromptService, Templates
from tg_gateway.app import Gateway
from tg_schema import AGENT

MODEL: Final = "tinydemo"
"""The model of all examples."""
TEMPLATE: Final = TemplateConfig(prompt="{{ question }}")
CONFIG: Final = Config(
    flows={"default": {"text-completion": TextCompletionConfig(model=MODEL), "prompt": PromptConfig()}},
    prompts=PromptsConfig(templates={"question": TEMPLATE}),
)
TEXTS: Final = CONFIG.routes("text-completion")
PROMPTS: Final = CONFIG.routes("prompt")
TOPICS: Final = CONFIG.topics
AGENTS: Final = (
    Route("default", AGENT, TOPICS.request("default", AGENT.name), TOPICS.response("default", AGENT.name), False),
)
ROUTES: Final = TEXTS + PROMPTS + AGENTS
ON_ANY_PORT: Final = GatewayConfig(port=0, drain=0.05)


@asynccontextmanager
async def described_gateway(
    llm: Service[Any, Any], config: GatewayConfig = ON_ANY_PORT
) -> AsyncIterator[ClientSession]:
    """Everything in one process, when the model is known; the client's base URL is the gateway's."""
    bus = MemoryBus()
    async with (
        Requestor(bus, TOPICS, queues=tuple(route.request for route in ROUTES)) as requestor,
        Processor(bus, TOPICS, llm, TEXTS, models=(MODEL,), grace=0.05),
        Processor(bus, TOPICS, PromptService(Client(requestor, TEXTS[0]), Templates.of(CONFIG)), PROMPTS, grace=0.05),
        Processor(bus, TOPICS, ScriptedAgent(), AGENTS, grace=0.05),
        Gateway(config, requestor, ROUTES) as gateway,
        ClientSession(gateway.url) as http,
    ):
        if not config.keys:
            await until_listed(http)
        yield http
    await bus.aclose()
