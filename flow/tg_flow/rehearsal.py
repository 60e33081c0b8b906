"""Configuration -> findings: what a start would refuse, found by the code that a start runs."""

from contextlib import AsyncExitStack

from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.config import Config, Findings
from tg_flow.agent import AgentPrompts, ToolContext
from tg_flow.prompt import Templates
from tg_flow.providers import rehearse_provider
from tg_flow.services import list_bound_models, open_agent, open_model
from tg_schema import AGENT


async def rehearse_models(config: Config, findings: Findings) -> None:
    """Make every bound model ready, short of loading weights. One without a table is the reader's finding."""
    for model in [model for model in list_bound_models(config) if model in config.models]:
        with findings.collect():
            await open_model(config, model, rehearse_provider)


async def rehearse_prompts(config: Config, findings: Findings) -> None:
    """Compile every template."""
    Templates.check(config, findings)


async def rehearse_agents(config: Config, bus: Bus, findings: Findings) -> None:
    """Open every agent's tools, and close them."""
    prompts = AgentPrompts.of(Config())
    with findings.collect():
        prompts = AgentPrompts.of(config)
    requestor = Requestor(bus, config.topics)
    for route in config.routes(AGENT.name):
        if not route.plain:
            async with AsyncExitStack() as stack:
                with findings.collect():
                    await open_agent(ToolContext(config, route.flow, requestor), prompts, stack, findings)
