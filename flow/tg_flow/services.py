"""Configuration -> running processors: the one place that knows which service a table of the file becomes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from tg_base.bus import Bus
from tg_base.client import Client, Requestor
from tg_base.config import SPECS, Config, ConfigWatcher, Findings, FirstFinding
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server import Processor
from tg_flow.agent import AgentModel, AgentPrompts, AgentService, Member, ToolContext, open_tools
from tg_flow.prompt import PromptService, Templates
from tg_flow.providers import open_provider
from tg_schema import AGENT, PROMPT, TEXT_COMPLETION, TgError
from tg_schema.errors import BadRequest
from tg_schema.topics import resolve_topic

Opened = TypeVar("Opened")


@asynccontextmanager
async def text_completion(
    config: Config, bus: Bus, *, timing: HeartbeatTiming | None = None
) -> AsyncIterator[tuple[Processor, ...]]:
    """Serve text completion while the block runs: one processor for each model that a flow binds.

    Raises:
        TgError: a model cannot be made ready; the message has its place in the file.
    """
    async with AsyncExitStack() as stack:
        processors = []
        for model in list_bound_models(config):
            service = await open_model(config, model, open_provider)
            try:
                routes = _routes_of(config, model)
                processor = Processor(bus, config.topics, service, routes, models=(model,), timing=timing)
                processors.append(await stack.enter_async_context(processor))
            except BaseException:
                await service.aclose()
                raise
        yield tuple(processors)


@asynccontextmanager
async def prompt(
    file: ConfigWatcher, bus: Bus, *, timing: HeartbeatTiming | None = None
) -> AsyncIterator[tuple[Processor, ...]]:
    """Serve prompts while the block runs: one processor for each flow that has them. Follows edits of the templates.

    Raises:
        BadRequest: a template is wrong; the message has file and line.
    """
    config = file.config
    templates = Templates.of(config)
    async with AsyncExitStack() as stack:
        completions = {route.flow: route for route in config.routes(TEXT_COMPLETION.name)}
        plain = tuple({route.response for route in completions.values() if route.plain})
        queues = tuple({route.request for route in completions.values() if not route.plain})
        requestor = Requestor(bus, config.topics, plain=plain, queues=queues, timing=timing)
        routes = tuple(route for route in config.routes(PROMPT.name) if not route.plain)
        services = [
            PromptService(Client(requestor, completions[route.flow], bounded=True), templates) for route in routes
        ]
        stack.enter_context(file.follow(_prepare(services)))
        await stack.enter_async_context(requestor)
        processors = [
            await stack.enter_async_context(Processor(bus, config.topics, service, (route,), timing=timing))
            for service, route in zip(services, routes, strict=True)
        ]
        yield tuple(processors)


@asynccontextmanager
async def agent(
    file: ConfigWatcher, bus: Bus, *, timing: HeartbeatTiming | None = None
) -> AsyncIterator[tuple[Processor, ...]]:
    """Serve agents while the block runs: one processor for each flow that has one. Follows edits of their prompts.

    Raises:
        TgError: a tool cannot be made ready, or a prompt is wrong; the message has its place in the file.
    """
    config = file.config
    prompts = AgentPrompts.of(config)
    async with AsyncExitStack() as stack:
        routes = tuple(route for route in config.routes(AGENT.name) if not route.plain)
        plain = _plain_responses(config)
        requestor = await stack.enter_async_context(Requestor(bus, config.topics, plain=plain, timing=timing))
        services = []
        for route in routes:
            context = ToolContext(config, route.flow, requestor)
            services.append(await open_agent(context, prompts, stack, FirstFinding()))
        stack.enter_context(file.follow(_prepare_agents(services)))
        processors = [
            await stack.enter_async_context(Processor(bus, config.topics, service, (route,), timing=timing))
            for service, route in zip(services, routes, strict=True)
        ]
        yield tuple(processors)


def _plain_responses(config: Config) -> tuple[str, ...]:
    """Where peers answer that know no inbox: those of flows, and those that are tools."""
    routes = [route for service in SPECS for route in config.routes(service) if route.plain]
    topics = [route.response for route in routes]
    for tool in config.tools.values():
        with suppress(ValueError):  # the tool itself says what is wrong with it, and where
            topics += [resolve_topic(str(tool.options["response"]))] if "response" in tool.options else []
    return tuple(dict.fromkeys(topics))


async def open_agent(
    context: ToolContext, prompts: AgentPrompts, stack: AsyncExitStack, findings: Findings
) -> AgentService:
    """The agent of one flow, with its tools, until the stack is left; a tool that cannot be made ready is a finding.

    Raises:
        BadRequest: two tools have one name; the message has its place in the file.
    """
    config = context.config
    profile = config.flows[context.flow][AGENT.name]
    thinks = context.flow if profile.model is None else _flow_of(config, context.flow, profile.model)
    thinker = AgentModel(context.requestor, context.client(TEXT_COMPLETION.name, thinks), profile.calling, prompts)
    names = config.tools if profile.tools is None else profile.tools
    tools = await stack.enter_async_context(open_tools(context, names, findings))
    team = {
        flow: Member(config.flows[flow][AGENT.name].description, context.client(AGENT.name, flow))
        for flow in profile.agents
    }
    try:
        return AgentService(profile, thinker, tools, team)
    except BadRequest as error:
        raise config.locate(error, "flows", context.flow, AGENT.name, otherwise=("tools",)) from None


def _flow_of(config: Config, flow: str, model: str) -> str:
    """The flow whose text completion has this model: the agent's own if possible."""
    for name in (flow, *config.flows):
        bound = config.flows[name].get(TEXT_COMPLETION.name)
        if bound is not None and bound.model == model:
            return name
    return flow


def _prepare_agents(services: list[AgentService]) -> Callable[[Config], Callable[[], None]]:
    def prepare(config: Config) -> Callable[[], None]:
        prompts = AgentPrompts.of(config)

        def commit() -> None:
            for service in services:
                service.thinker.prompts = prompts

        return commit

    return prepare


def _prepare(services: list[PromptService]) -> Callable[[Config], Callable[[], None]]:
    def prepare(config: Config) -> Callable[[], None]:
        templates = Templates.of(config)

        def commit() -> None:
            for service in services:
                service.templates = templates

        return commit

    return prepare


def list_bound_models(config: Config) -> list[str]:
    """The models that some flow binds, each once."""
    bound = [services[TEXT_COMPLETION.name] for services in config.flows.values() if TEXT_COMPLETION.name in services]
    return list(dict.fromkeys(service.model for service in bound if service.model is not None and not service.plain))


def _routes_of(config: Config, model: str) -> tuple[Route[Any, Any], ...]:
    routes = config.routes(TEXT_COMPLETION.name)
    flows = config.flows
    return tuple(
        route for route in routes if not route.plain and flows[route.flow][TEXT_COMPLETION.name].model == model
    )


async def open_model(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    """Make one table of models ready.

    Raises:
        TgError: it cannot be; the message has its place in the file.
    """
    table = config.models[model]
    try:
        return await opener(table.provider, model, table.options)
    except TgError as error:
        raise config.locate(error, "models", model, otherwise=("provider",)) from None
