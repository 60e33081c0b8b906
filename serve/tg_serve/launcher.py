"""Order -> running services: the single file that knows flow, gateway and base, each imported when it is run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tg_base.bus import Bus, open_bus
from tg_base.client import Requestor
from tg_base.config import (
    OVERRIDDEN_FLOW,
    SPECS,
    CliOverrides,
    Config,
    ConfigWatcher,
    Findings,
    inspect_config,
    sound_part,
)
from tg_base.server import serve_process
from tg_base.telemetry import configure_log
from tg_schema import AGENT, PROMPT, TEXT_COMPLETION, TgError
from tg_schema.errors import BadRequest, Timeout, Unavailable
from tg_serve.options import PARTS, Part, ServeOptions

if TYPE_CHECKING:
    from tg_gateway.app import Gateway

_PING = 10.0
"""Seconds in which a bus must answer a check."""


def serve(order: ServeOptions, ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT, then drain; `ready` gets one line when everything runs.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    set_up(order)
    serve_process(_announce(order), ready)


def set_up(order: ServeOptions) -> None:
    """Configure what belongs to the whole process: its log."""
    configure_log(order.log_form, order.log_level)


def check(order: ServeOptions) -> tuple[str, list[str]]:
    """Do what a start does, short of listening and of loading weights; ask the bus, and a model that the order names.

    Returns:
        What would run; and all that is wrong, each with its place in the file.
    """
    set_up(order)
    return asyncio.run(inspect(order))


async def inspect(order: ServeOptions) -> tuple[str, list[str]]:
    """`check`, on the loop that runs."""
    findings = Findings()
    return await _check(order, findings), findings.sentences


@asynccontextmanager
async def launch(order: ServeOptions) -> AsyncIterator[tuple[Config, str | None]]:
    """Run parts of the pipeline in this process until the block is left, the gateway leaving first.

    Yields the configuration in force, and the gateway's URL where it is one of the parts.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    async with AsyncExitStack() as stack:
        config_file = await stack.enter_async_context(ConfigWatcher(order.file))
        config = _configure(order, config_file.config)
        bus = await _open_bus(order, config, stack)
        if "text-completion" in order.parts:
            from tg_flow.services import text_completion

            await stack.enter_async_context(text_completion(config, bus))
        if "prompt" in order.parts:
            from tg_flow.services import prompt

            await stack.enter_async_context(prompt(config_file, bus))
        if "agent" in order.parts and config.routes(AGENT.name):
            from tg_flow.services import agent

            await stack.enter_async_context(agent(config_file, bus))
        yield config, await _gateway(config, bus, stack) if "gateway" in order.parts else None


@asynccontextmanager
async def _announce(order: ServeOptions) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if order.metrics_port is not None:
            from tg_gateway.metrics_page import metrics_page

            await stack.enter_async_context(metrics_page(order.host or "127.0.0.1", order.metrics_port))
        config, url = await stack.enter_async_context(launch(order))
        yield _ready_line(config, order.parts, url)


async def _open_bus(order: ServeOptions, config: Config, stack: AsyncExitStack) -> Bus:
    try:
        return await stack.enter_async_context(open_bus(config.bus.url, config.bus.options))
    except TgError as error:
        raise _of_bus(order, config, error) from None


def _of_bus(order: ServeOptions, config: Config, error: TgError) -> TgError:
    """With its place, unless the command line named the bus."""
    named = order.bus is not None and error.option[:1] != ("options",)
    return error if named else config.locate(error, "bus", otherwise=("url",))


def _make_gateway(config: Config, bus: Bus) -> tuple[Requestor, "Gateway"]:
    from tg_gateway.app import Gateway

    routes = tuple(route for service in SPECS for route in config.routes(service))
    plain = tuple(route.response for route in routes if route.plain)
    queues = tuple(route.request for route in routes if not route.plain)
    requestor = Requestor(bus, config.topics, plain=plain, queues=queues)
    try:
        return requestor, Gateway(config.gateway, requestor, routes)
    except BadRequest as error:
        raise config.locate(error, "gateway", otherwise=("host",)) from None


async def _gateway(config: Config, bus: Bus, stack: AsyncExitStack) -> str:
    requestor, gateway = _make_gateway(config, bus)
    await stack.enter_async_context(requestor)
    try:
        await stack.enter_async_context(gateway)
    except OSError:
        where = f"port {config.gateway.port} of {config.gateway.host}"
        raise Unavailable(f"the gateway cannot listen on {where}: taken or not allowed; give another --port") from None
    return gateway.url


async def _check(order: ServeOptions, findings: Findings) -> str:
    with findings.collect():
        read = ConfigWatcher().config if order.file is None else inspect_config(order.file, findings)
        if read is not None:
            config = _configure(order, read)
            await _rehearse(order, read, config, findings)
            if not findings.sentences:
                asked = await _ask_model(order, config) if order.model or order.provider else ()
                return "\n".join((_would_run(order, config), *asked))
    return ""


async def _rehearse(order: ServeOptions, read: Config, config: Config, findings: Findings) -> None:
    """As `launch`: models and gateway by the configuration with the order in it, the rest by the file."""
    from tg_flow.rehearsal import rehearse_agents, rehearse_models, rehearse_prompts

    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus("memory://"))
        with findings.collect():
            bus = await _open_bus(order, config, stack)
            await _ping(order, config, bus)
        if "text-completion" in order.parts:
            await rehearse_models(config, findings)
        if "prompt" in order.parts:
            await rehearse_prompts(read, findings)
        if "agent" in order.parts:
            await rehearse_agents(sound_part(read), bus, findings)
        if "gateway" in order.parts:
            with findings.collect():
                _make_gateway(sound_part(config), bus)


async def _ping(order: ServeOptions, config: Config, bus: Bus) -> None:
    try:
        async with asyncio.timeout(_PING):
            await bus.ping()
    except TimeoutError:
        silent = Timeout(f"{config.bus.url} does not answer within {_PING:g} s; check the URL, and the broker")
        raise _of_bus(order, config, silent) from None
    except TgError as error:
        raise _of_bus(order, config, error) from None


async def _ask_model(order: ServeOptions, config: Config) -> tuple[str]:
    """What the model that the order names answers to one smallest request."""
    from tg_flow.providers import check_provider

    if order.model is None:
        return (await check_provider(order.provider or "", None, order.options),)
    bound = config.flows[OVERRIDDEN_FLOW][TEXT_COMPLETION.name].model or order.model
    return (await check_provider(config.models[bound].provider, bound, config.models[bound].options),)


def _configure(order: ServeOptions, config: Config) -> Config:
    overrides = CliOverrides(order.bus, order.host, order.port, order.drain, order.model, order.provider, order.options)
    config = overrides.apply(config)
    if config.bus.url == "memory://" and set(order.parts) != set(PARTS):
        raise BadRequest("memory:// reaches no other process: with --only, give --bus pulsar://HOST:6650 as well")
    return config


def _would_run(order: ServeOptions, config: Config) -> str:
    source = "the built-in configuration" if config.source is None else str(config.source.file)
    parts = ", ".join(f"{part} ({_what(config, part)})" for part in order.parts)
    return f"ok: {source} would serve {parts}, on {config.bus.url}, which answers"


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
