"""Configuration -> running processors: the one place that knows which service a table of the file becomes."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from tg_base.bus.api import Bus
from tg_base.client import Client
from tg_base.config import SPECS, Config
from tg_base.config_file import ConfigFile
from tg_base.liveness import Liveness
from tg_base.llm_service import LlmService
from tg_base.processor import Processor
from tg_base.requestor import Requestor
from tg_base.route import Route
from tg_flow.agent.agent_prompts import AgentPrompts
from tg_flow.agent.agent_service import AgentService, Member
from tg_flow.agent.agent_tool import Reach
from tg_flow.agent.thinker import Thinker
from tg_flow.agent.toolbox import opened_tools
from tg_flow.prompt.prompt_service import PromptService
from tg_flow.prompt.templates import Templates
from tg_flow.providers.registry import open_provider
from tg_schema.errors import TgError
from tg_schema.service_spec import AGENT, PROMPT, TEXT_COMPLETION
from tg_schema.topics import resolved


@asynccontextmanager
async def text_completion(
    config: Config, bus: Bus, *, liveness: Liveness | None = None
) -> AsyncIterator[tuple[Processor, ...]]:
    """Serve text completion while the block runs: one processor for each model that a flow binds.

    Raises:
        TgError: a model cannot be made ready; the message has its place in the file.
    """
    async with AsyncExitStack() as stack:
        processors = []
        for model in _bound_models(config):
            service = await _opened(config, model)
            try:
                routes = _routes_of(config, model)
                processor = Processor(bus, config.topics, service, routes, models=(model,), liveness=liveness)
                processors.append(await stack.enter_async_context(processor))
            except BaseException:
                await service.aclose()
                raise
        yield tuple(processors)


@asynccontextmanager
async def prompt(
    file: ConfigFile, bus: Bus, *, liveness: Liveness | None = None
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
        requestor = Requestor(bus, config.topics, plain=plain, liveness=liveness)
        routes = tuple(route for route in config.routes(PROMPT.name) if not route.plain)
        services = [
            PromptService(Client(requestor, completions[route.flow], bounded=True), templates) for route in routes
        ]
        stack.enter_context(file.follow(_prepare(services)))
        await stack.enter_async_context(requestor)
        processors = [
            await stack.enter_async_context(Processor(bus, config.topics, service, (route,), liveness=liveness))
            for service, route in zip(services, routes, strict=True)
        ]
        yield tuple(processors)


@asynccontextmanager
async def agent(
    file: ConfigFile, bus: Bus, *, liveness: Liveness | None = None
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
        requestor = await stack.enter_async_context(Requestor(bus, config.topics, plain=plain, liveness=liveness))
        services = []
        for route in routes:
            reach = Reach(config, route.flow, requestor)
            services.append(await _agent_of(reach, prompts, stack))
        stack.enter_context(file.follow(_prepare_agents(services)))
        processors = [
            await stack.enter_async_context(Processor(bus, config.topics, service, (route,), liveness=liveness))
            for service, route in zip(services, routes, strict=True)
        ]
        yield tuple(processors)


def _plain_responses(config: Config) -> tuple[str, ...]:
    """Where peers answer that know no inbox: those of flows, and those that are tools."""
    routes = [route for service in SPECS for route in config.routes(service) if route.plain]
    topics = [route.response for route in routes]
    for tool in config.tools.values():
        with suppress(ValueError):  # the tool itself says what is wrong with it, and where
            topics += [resolved(str(tool.options["response"]))] if "response" in tool.options else []
    return tuple(dict.fromkeys(topics))


async def _agent_of(reach: Reach, prompts: AgentPrompts, stack: AsyncExitStack) -> AgentService:
    config = reach.config
    profile = config.flows[reach.flow][AGENT.name]
    thinks = reach.flow if profile.model is None else _flow_of(config, reach.flow, profile.model)
    thinker = Thinker(reach.requestor, reach.client(TEXT_COMPLETION.name, thinks), profile.calling, prompts)
    names = config.tools if profile.tools is None else profile.tools
    tools = await stack.enter_async_context(opened_tools(reach, names))
    team = {
        flow: Member(config.flows[flow][AGENT.name].description, reach.client(AGENT.name, flow))
        for flow in profile.agents
    }
    return AgentService(profile, thinker, tools, team)


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


def _bound_models(config: Config) -> list[str]:
    bound = [services[TEXT_COMPLETION.name] for services in config.flows.values() if TEXT_COMPLETION.name in services]
    return list(dict.fromkeys(service.model for service in bound if service.model is not None and not service.plain))


def _routes_of(config: Config, model: str) -> tuple[Route[Any, Any], ...]:
    routes = config.routes(TEXT_COMPLETION.name)
    flows = config.flows
    return tuple(
        route for route in routes if not route.plain and flows[route.flow][TEXT_COMPLETION.name].model == model
    )


async def _opened(config: Config, model: str) -> LlmService:
    table = config.models[model]
    try:
        return await open_provider(table.provider, model, table.options)
    except TgError as error:
        raise type(error)(f"{config.where('models', model)}: {error.message}") from None
