"""[flows.NAME.agent] -> running processors: one for each flow that has an agent, with its model, tools and team."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from typing_extensions import override

from tg_base.client import Requestor
from tg_base.config import AgentConfig, Config, Findings, FirstFinding, TextCompletionConfig, sound_part
from tg_base.protocol import Route
from tg_base.runtime import start_daemon_thread
from tg_base.server import Opened, ServeContext, ServiceKind
from tg_flow.agent.core import AgentModel, AgentPrompts, ToolContext
from tg_flow.agent.service import AgentService, Member, load_patterns
from tg_flow.agent.tools import open_tools
from tg_schema import AGENT, TEXT_COMPLETION
from tg_schema.errors import BadRequest


class AgentKind(ServiceKind):
    """Runs agents, and follows edits of their prompts and of the flows."""

    table = AgentConfig

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        config = context.config
        if not config.bound(AgentConfig):
            return
        prompts, services = AgentPrompts.of(config), dict[Route[Any, Any], AgentService]()

        def use(edited: AgentPrompts) -> None:
            nonlocal prompts
            prompts = edited
            for service in services.values():
                service.model.prompts = edited

        # Follow edits before the first wait: an edit may arrive while an agent is opened.
        stack.enter_context(context.follow_part(AgentPrompts.of, use))
        requestor = Requestor(context.bus, config.topics, timing=context.timing, plans=config.plans)
        # Keep plans that an edit removes: services use them until they are replaced, and running requests even longer.
        stack.enter_context(
            context.follow_part(lambda to: {**requestor.routes.named, **to.plans}, requestor.routes.replace)
        )
        await stack.enter_async_context(requestor)
        for route in self.routes(config):
            service = await open_agent(ToolContext(config, route.flow, requestor), prompts, stack, FirstFinding())
            service.model.prompts = prompts
            services[route] = service
        for route, service in services.items():
            yield Opened(service, (route,))

    @override
    def find_parts(self, config: Config) -> object:
        """The agents, the flows of their models, their tools, and the routes of all flows that these name."""
        agents = config.bound(AgentConfig)
        thinking = [_find_flow(config, flow, agent.model) for flow, agent in agents.items() if agent.model is not None]
        named = {*agents, *thinking, *(member for agent in agents.values() for member in agent.agents)}
        # Any option of a tool may name a flow, because other packages may bring kinds of tools.
        named |= {said for tool in config.tools.values() for said in tool.options.values() if isinstance(said, str)}
        asked = [replace(route, model=None) for route in config.all_routes if route.flow in named]
        return agents, thinking, config.tools, asked

    @override
    async def rehearse(self, context: ServeContext, findings: Findings) -> None:
        """Open every agent's tools, and close them."""
        config, prompts = sound_part(context.config), AgentPrompts.of(Config())
        with findings.collect():
            prompts = AgentPrompts.of(config)
        requestor = Requestor(context.bus, config.topics)
        for route in self.routes(config):
            async with AsyncExitStack() as stack:
                with findings.collect():
                    await open_agent(ToolContext(config, route.flow, requestor), prompts, stack, findings)

    @override
    def summarize(self, config: Config) -> str:
        agents = (f"{flow} ({said.pattern})" for flow, said in config.bound(AgentConfig).items())
        return ", ".join(agents) or "no flow has an agent"


async def open_agent(
    context: ToolContext, prompts: AgentPrompts, stack: AsyncExitStack, findings: Findings
) -> AgentService:
    """The agent of one flow, with its tools, until the stack is left. A tool that cannot be opened becomes a finding.

    Raises:
        BadRequest: two tools have one name; the message has its place in the file.
    """
    config, agents = context.config, context.config.bound(AgentConfig)
    profile = agents[context.flow]
    thinks = context.flow if profile.model is None else _find_flow(config, context.flow, profile.model)
    model = AgentModel(context.requestor, context.client(TEXT_COMPLETION.name, thinks), profile, prompts)
    names = config.tools if profile.tools is None else profile.tools
    tools = await stack.enter_async_context(open_tools(context, names, findings))
    team = {flow: Member(agents[flow].description, context.client(AGENT.name, flow)) for flow in profile.agents}
    patterns = await start_daemon_thread(lambda: load_patterns(profile), "import patterns")
    try:
        return AgentService(profile, model, tools, team, patterns)
    except BadRequest as error:
        raise config.locate(error, "flows", context.flow, AGENT.name, otherwise=("tools",)) from None


def _find_flow(config: Config, flow: str, model: str) -> str:
    """The flow whose text completion has this model; the agent's own flow is preferred."""
    bound = config.bound(TextCompletionConfig)
    return next((name for name in (flow, *bound) if name in bound and bound[name].model == model), flow)
