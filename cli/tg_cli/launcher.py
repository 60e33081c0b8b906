"""Order -> running services: the single file that knows flow, gateway and base, each imported when it is run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from tg_base.bus.api import Bus
from tg_base.bus.open import open_bus
from tg_base.config import SPECS, Config
from tg_base.config_file import ConfigFile
from tg_base.log import configure_log
from tg_base.metrics_page import metrics_page
from tg_base.overrides import FLOW, Overrides
from tg_base.process import serve_process
from tg_cli.order import PARTS, Order, Part
from tg_schema.errors import BadRequest, Timeout, Unavailable
from tg_schema.service_spec import AGENT, PROMPT, TEXT_COMPLETION

_PING = 10.0
"""Seconds in which a bus must answer a check."""


def serve(order: Order, ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT, then drain; `ready` gets one line when everything runs.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    set_up(order)
    serve_process(_announced(order), ready)


def set_up(order: Order) -> None:
    """Configure what belongs to the whole process: its log."""
    configure_log(order.log_form, order.log_level)


def check(order: Order) -> str:
    """Read the configuration and try the bus, and the model or provider that the order names; say what would run.

    Raises:
        TgError: it would not run; the message says what to do.
    """
    set_up(order)
    config = _configured(order, ConfigFile(order.file).config)
    asyncio.run(_ping(config))
    asked = asyncio.run(_asked(order, config)) if order.model or order.provider else ()
    source = "built in" if config.source is None else str(config.source.file)
    parts = [f"{part}: {_what(config, part)}" for part in order.parts]
    return "\n".join((f"configuration: {source}", f"bus: {config.bus.url}, which answers", *parts, *asked))


@asynccontextmanager
async def launched(order: Order) -> AsyncIterator[tuple[Config, str | None]]:
    """Run parts of the pipeline in this process until the block is left, the gateway leaving first.

    Yields the configuration in force, and the gateway's URL where it is one of the parts.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    async with AsyncExitStack() as stack:
        config_file = await stack.enter_async_context(ConfigFile(order.file))
        config = _configured(order, config_file.config)
        bus = await stack.enter_async_context(open_bus(config.bus.url, config.bus.options))
        if "text-completion" in order.parts:
            from tg_flow.processors import text_completion

            await stack.enter_async_context(text_completion(config, bus))
        if "prompt" in order.parts:
            from tg_flow.processors import prompt

            await stack.enter_async_context(prompt(config_file, bus))
        if "agent" in order.parts and config.routes(AGENT.name):
            from tg_flow.processors import agent

            await stack.enter_async_context(agent(config_file, bus))
        yield config, await _gateway(config, bus, stack) if "gateway" in order.parts else None


@asynccontextmanager
async def _announced(order: Order) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if order.metrics_port is not None:
            await stack.enter_async_context(metrics_page(order.host or "127.0.0.1", order.metrics_port))
        config, url = await stack.enter_async_context(launched(order))
        yield _ready_line(config, order.parts, url)


async def _gateway(config: Config, bus: Bus, stack: AsyncExitStack) -> str:
    from tg_base.requestor import Requestor
    from tg_gateway.gateway import Gateway

    routes = tuple(route for service in SPECS for route in config.routes(service))
    plain = tuple(route.response for route in routes if route.plain)
    requestor = await stack.enter_async_context(Requestor(bus, config.topics, plain=plain))
    try:
        gateway = await stack.enter_async_context(Gateway(config.gateway, requestor, routes))
    except OSError:
        where = f"port {config.gateway.port} of {config.gateway.host}"
        raise Unavailable(f"the gateway cannot listen on {where}: taken or not allowed; give another --port") from None
    return gateway.url


async def _ping(config: Config) -> None:
    async with open_bus(config.bus.url, config.bus.options) as bus:
        try:
            async with asyncio.timeout(_PING):
                await bus.ping()
        except TimeoutError:
            raise Timeout(
                f"{config.bus.url} does not answer within {_PING:g} s; check the URL, and the broker"
            ) from None


async def _asked(order: Order, config: Config) -> tuple[str]:
    """What the model that the order names answers to one smallest request."""
    from tg_flow.provider_check import check_provider

    if order.model is None:
        return (await check_provider(order.provider or "", None, order.options),)
    bound = config.flows[FLOW][TEXT_COMPLETION.name].model or order.model
    return (await check_provider(config.models[bound].provider, bound, config.models[bound].options),)


def _configured(order: Order, config: Config) -> Config:
    overrides = Overrides(order.bus, order.host, order.port, order.drain, order.model, order.provider, order.options)
    config = overrides.applied(config)
    if config.bus.url == "memory://" and set(order.parts) != set(PARTS):
        raise BadRequest("memory:// reaches no other process: with --only, give --bus pulsar://HOST:6650 as well")
    return config


def _ready_line(config: Config, parts: tuple[Part, ...], url: str | None) -> str:
    """What is served, where, and how to try it."""
    served = ", ".join(f"{part} ({_what(config, part)})" for part in parts if part != "gateway")
    if url is None:
        return f"ready: {served}, on {config.bus.url}; add a gateway: tg-serve --bus {config.bus.url} --only gateway"
    served = served or "what is on the bus"
    where = "" if url == "http://127.0.0.1:8888/" else f" -u {url}"
    return f'ready: {url} serves {served}; try: tg-invoke-llm{where} "be brief" "What is Apache Pulsar?"'


def _what(config: Config, part: Part) -> str:
    match part:
        case "text-completion":
            bound = [
                (route.flow, config.flows[route.flow][part].model) for route in config.routes(TEXT_COMPLETION.name)
            ]
            models = [f"{model} of {config.models[model].provider}" for flow, model in bound if model is not None]
            return ", ".join(dict.fromkeys(models)) or "no flow has a model"
        case "prompt":
            return f"{len(config.prompts.templates)} templates" if config.routes(PROMPT.name) else "no flow has prompts"
        case "agent":
            agents = [f"{route.flow} ({config.flows[route.flow][part].pattern})" for route in config.routes(AGENT.name)]
            return ", ".join(agents) or "no flow has an agent"
        case "gateway":
            return f"http://{config.gateway.host}:{config.gateway.port}/, auth {config.gateway.auth}"
