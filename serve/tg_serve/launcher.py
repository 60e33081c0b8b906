"""ServeOptions -> running services: the file that connects base, flow and gateway, imported as they are needed."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from tg_base.bus import Bus, open_bus
from tg_base.client import Requestor
from tg_base.config import (
    SERVICES,
    CliOverrides,
    Config,
    ConfigWatcher,
    Findings,
    Prepare,
    ServiceConfig,
    TextCompletionConfig,
    inspect_config,
    sound_part,
)
from tg_base.protocol import Route
from tg_base.runtime import SharedListener, explain_no_listening, running
from tg_base.server import (
    LEAVING,
    Host,
    ProcessEvents,
    Readiness,
    ServeContext,
    ServiceKind,
    Work,
    Workers,
    WorkerSettings,
    add_kinds,
    end_if_held,
    serve_process,
)
from tg_base.telemetry import configure_log, export_spans
from tg_schema import TEXT_COMPLETION, TgError
from tg_schema.errors import BadRequest, Internal, Timeout, Unavailable
from tg_serve.options import GATEWAY, LOOPBACK, ServeOptions
from tg_serve.served import check_workers, describe_served, find_rest

if TYPE_CHECKING:
    from tg_gateway.app import Gateway

Follow = Callable[[Prepare], AbstractContextManager[None]]
KNOWING_SECONDS = 3.0
"""Seconds that a new worker waits for processors to announce themselves before it accepts."""
_PING_SECONDS = 10.0
"""Timeout of a check's ping to the bus in seconds."""


def serve(order: ServeOptions, ready: Callable[[str], None]) -> None:
    """Run until a signal ends it, then drain; `ready` is called with one line when everything runs.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    set_up(order)
    order = add_services(order)
    if order.workers is None:
        serve_process(_announce(order), ready)
        return
    gateway = _configure(order, _read_file(order).config).gateway
    settings = WorkerSettings(
        Work(serve_worker, order),
        order.workers,
        gateway.host,
        gateway.port,
        gateway.drain,
        metrics_host=order.host or LOOPBACK,
        metrics_port=order.metrics_port,
    )
    workers = Workers(settings)
    serve_process(workers.serve(), ready, events=ProcessEvents(hangup=workers.restart, killed=workers.kill))


def serve_worker(work: Work, ready: Callable[[str], None]) -> None:
    """Be one of several gateways until SIGINT or the end of the parent; SIGTERM and SIGHUP hand over to the others.

    Raises:
        TgError: as `serve`.
    """
    order: ServeOptions = work.order
    configure_log(order.log_form, order.log_level, about={"worker": work.number})
    accepting, shown = (
        [socket.socket(fileno=each) for each in given] for given in (work.sockets, work.metrics_sockets)
    )
    listener = SharedListener(accepting, order.workers or 1, shown)

    def leave(number: int) -> None:
        listener.handing_over = number == signal.SIGTERM
        ready(LEAVING)

    hangup = partial(signal.raise_signal, signal.SIGTERM)
    events = ProcessEvents(hangup=hangup, ending=leave, lifeline=work.lifeline)
    serve_process(_announce(order, listener), ready, events=events)


def set_up(order: ServeOptions) -> None:
    """Configure the log of the process."""
    configure_log(order.log_form, order.log_level)


def check(order: ServeOptions) -> tuple[str, list[str]]:
    """Start without listening or loading weights, ping the bus, and send a request to each model of the options.

    Returns:
        A description of what would run; and all errors, each with its position in the file.
    """
    set_up(order)
    return asyncio.run(inspect(order))


async def inspect(order: ServeOptions) -> tuple[str, list[str]]:
    """`check`, on the running loop."""
    findings = Findings()
    return await _check(order, findings), findings.sentences


@asynccontextmanager
async def launch(
    order: ServeOptions, listener: SharedListener | None = None, kinds: Mapping[str, ServiceKind] | None = None
) -> AsyncIterator[tuple[Config, str | None]]:
    """Run parts of the pipeline in this process until the block is left; the gateway stops first.

    `kinds` are the kinds of the order's services; None = load them here.

    Yields the active configuration and the gateway's URL, or None if this process runs no gateway. The gateway
    listens at its configured address, unless `listener` is given.

    Raises:
        TgError: a part cannot run; the message says what to do.
    """
    order = add_services(order)
    async with AsyncExitStack() as stack:
        config_file = await stack.enter_async_context(_read_file(order))
        config = _configure(order, config_file.config)

        def follow(prepare: Prepare) -> AbstractContextManager[None]:
            # The command line overrides an edited file too.
            return config_file.follow(lambda edited: prepare(_configure(order, edited)))

        await stack.enter_async_context(export_spans(config.traces.endpoint, config.traces.share))
        readiness = Readiness()
        if order.metrics_port is not None:
            # Start the metrics page first, so that a slow start can be observed.
            from tg_gateway.metrics_page import metrics_page

            page = metrics_page(
                order.host or LOOPBACK,
                order.metrics_port,
                listener.metrics if listener is not None else (),
                find_hosts=lambda: config_file.config.gateway.hosts,
                find_missing=readiness.find_missing,
            )
            await stack.enter_async_context(page)
        bus = readiness.bus = await _open_bus(order, config, stack)
        kinds = _load_kinds(order) if kinds is None else kinds
        host = await stack.enter_async_context(Host(bus, config.topics)) if kinds else None
        readiness.host = host
        # A service that nothing waits for, such as the usage counter, starts first and ends last.
        for kind in sorted(kinds.values(), key=lambda kind: kind.table.awaited):
            # The file as it is now: it may have been edited while the previous service was started.
            context = ServeContext(_configure(order, config_file.config), bus, follow, host=host)
            await stack.enter_async_context(kind.serve(context))
        config = _configure(order, config_file.config)
        url = await _gateway(order, config, bus, follow, stack, listener=listener) if GATEWAY in order.parts else None
        if host is not None:
            # Runs first: callers end before the services that they call, and all share one grace period.
            stack.callback(host.leave)
        readiness.stage = ""
        try:
            yield config, url
        finally:
            readiness.stage = "the process is shutting down"


@asynccontextmanager
async def launch_beside(order: ServeOptions) -> AsyncIterator[str]:
    """`launch` on the event loop of a command, and yield the gateway's URL.

    If a task blocks the loop for too long, the process exits.

    Raises:
        TgError: as `launch`.
    """
    async with launch(order) as (_, url):
        if url is None:
            raise Internal("the embedded pipeline has no gateway")
        with end_if_held():
            yield url


@asynccontextmanager
async def _announce(order: ServeOptions, listener: SharedListener | None = None) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        kinds = _load_kinds(order)
        config, url = await stack.enter_async_context(launch(order, listener, kinds))
        flows = tuple(config.bound(TextCompletionConfig))
        bound = [name for name in order.services if any(not route.plain for route in config.routes(name))]
        summary, rest = _summarize(kinds, config), find_rest(order, bound)
        yield describe_served(summary, config.bus.url, url, order.workers, flows, rest=rest)


def add_services(order: ServeOptions) -> ServeOptions:
    """The options with all services that flows may bind. Raises as `add_kinds`."""
    return replace(order, services=add_kinds(order.services, order.file, GATEWAY, order.only))


def _load_kinds(order: ServeOptions) -> dict[str, ServiceKind]:
    """The kinds of service that this process runs, by name."""
    return {name: _import(place)() for name, place in order.services.items() if name in order.parts}


def _import(place: str) -> Any:
    """The object that "module:NAME" names."""
    return EntryPoint(place, place, "").load()


def _list_tables(order: ServeOptions) -> tuple[type[ServiceConfig], ...]:
    """The services that flows may bind. Ours are listed without importing their code: a gateway runs no model."""
    ours = {table.spec.name: table for table in SERVICES if table.spec is not None}
    return tuple(ours.get(name) or _import(place).table for name, place in order.services.items())


def _read_file(order: ServeOptions) -> ConfigWatcher:
    return ConfigWatcher(order.file, services=_list_tables(order), completed=_overrides(order).completed)


async def _open_bus(order: ServeOptions, config: Config, stack: AsyncExitStack) -> Bus:
    try:
        return await stack.enter_async_context(open_bus(config.bus.url, config.bus.options))
    except TgError as error:
        raise _of_bus(order, config, error) from None


def _of_bus(order: ServeOptions, config: Config, error: TgError) -> TgError:
    """The error with its position in the file, unless the command line named the bus."""
    named = order.bus is not None and error.option[:1] != ("options",)
    return error if named else config.locate(error, "bus", otherwise=("url",))


def _make_gateway(
    order: ServeOptions, config: Config, bus: Bus, listener: SharedListener | None = None
) -> tuple[Requestor, "Gateway"]:
    from tg_gateway.app import Gateway

    routes = _list_routes(order, config)
    requestor = Requestor(bus, config.topics, queues=_list_queues(order, config), plans=config.plans)
    # Without a configuration file, the gateway is ready as soon as there is a model.
    needed = _list_awaited(order, config) if order.file is not None else config.routes(TEXT_COMPLETION.name)
    with _locating(config):
        return requestor, Gateway(config.gateway, requestor, routes, needed=needed, shared=listener)


def _list_awaited(order: ServeOptions, config: Config) -> tuple[Route[Any, Any], ...]:
    awaited = (table.spec.name for table in _list_tables(order) if table.awaited and table.spec is not None)
    return tuple(route for service in awaited for route in config.routes(service))


def _list_others(order: ServeOptions, config: Config) -> list[Route[Any, Any]]:
    """The awaited routes that other processes serve."""
    return [route for route in _list_awaited(order, config) if route.spec.name not in order.parts]


def _list_routes(order: ServeOptions, config: Config) -> tuple[Route[Any, Any], ...]:
    return tuple(route for service in order.services for route in config.routes(service))


def _list_queues(order: ServeOptions, config: Config) -> tuple[str, ...]:
    """The queues whose processors announce themselves."""
    return tuple(route.request for route in _list_routes(order, config) if not route.plain)


@contextmanager
def _locating(config: Config) -> Iterator[None]:
    """Prefix errors of the gateway's table with their position in the file."""
    try:
        yield
    except BadRequest as error:
        raise config.locate(error, "gateway", otherwise=("host",)) from None


async def _gateway(
    order: ServeOptions,
    config: Config,
    bus: Bus,
    follow: Follow,
    stack: AsyncExitStack,
    *,
    listener: SharedListener | None,
) -> str:
    requestor, gateway = _make_gateway(order, config, bus, listener)

    def prepare(edited: Config) -> Callable[[], None]:
        with _locating(edited):
            return gateway.prepare(edited.gateway, _list_routes(order, edited), edited.plans)

    stack.enter_context(follow(prepare))
    await stack.enter_async_context(requestor)
    await stack.enter_async_context(running(gateway.warn_of_unserved(_list_others(order, config), config)))
    if listener is not None:
        # In its first second a worker knows no model yet and would refuse requests; another worker takes them instead.
        await requestor.presence.until_served(_list_queues(order, config), KNOWING_SECONDS)
    try:
        await stack.enter_async_context(gateway)
    except (OSError, ValueError) as error:  # A host that cannot be a name, such as "a..b", is a ValueError.
        where = f"port {config.gateway.port} of {config.gateway.host}"
        reason = explain_no_listening(error, "give another --port")
        raise Unavailable(f"the gateway cannot listen on {where}: {reason}") from None
    return gateway.url


async def _check(order: ServeOptions, findings: Findings) -> str:
    with findings.collect():
        order = add_services(order)
        tables, completed = _list_tables(order), _overrides(order).completed
        default = ConfigWatcher(services=tables).config
        read = default if order.file is None else inspect_config(order.file, findings, tables, completed)
        if read is not None:
            config = _configure(order, read)
            if order.file is None and order.model is None and order.provider is not None:
                # Only the provider is checked: without a named model, nothing would be served with it.
                return "\n".join(await _ask_models(order, config))
            await _rehearse(order, config, findings)
            if not findings.sentences:
                asked = await _ask_models(order, config) if order.model or order.provider else ()
                return "\n".join((_would_run(order, config), *asked))
    return ""


async def _rehearse(order: ServeOptions, config: Config, findings: Findings) -> None:
    """Do what `launch` does, without listening and without loading weights."""
    async with AsyncExitStack() as stack:
        # The memory bus stands in for one that cannot be reached, so that the other errors are found as well.
        bus = await stack.enter_async_context(open_bus("memory://"))
        with findings.collect():
            bus = await _open_bus(order, config, stack)
            await _ping(order, config, bus)
        context = ServeContext(config, bus, lambda _: nullcontext())
        for kind in _load_kinds(order).values():
            await kind.rehearse(context, findings)
        if GATEWAY in order.parts:
            with findings.collect():
                requestor, gateway = _make_gateway(order, sound_part(config), bus)
                if order.only and not findings.sentences:
                    async with requestor:
                        await gateway.warn_of_unserved(_list_others(order, config), config)


async def _ping(order: ServeOptions, config: Config, bus: Bus) -> None:
    try:
        async with asyncio.timeout(_PING_SECONDS):
            await bus.ping(config.topics.announce)
            # The gateway sends requests to these queues, and their processors announce themselves.
            topic = config.topics.announce if GATEWAY in order.parts else config.topics.presence
            await bus.ping(topic, produce=True)
    except TimeoutError:
        silent = Timeout(f"{config.bus.url} does not answer within {_PING_SECONDS:g} s; check the URL, and the broker")
        raise _of_bus(order, config, silent) from None
    except TgError as error:
        raise _of_bus(order, config, error) from None


async def _ask_models(order: ServeOptions, config: Config) -> tuple[str, ...]:
    """The results of one minimal request to each model that the options name."""
    from tg_flow.providers import check_provider

    if order.model is None:
        return (await check_provider(order.provider or "", None, order.options),)
    flows = config.bound(TextCompletionConfig)
    names = [flows[flow].model or "" for flow in _overrides(order).flows]
    asked = [(config.models[name], name) for name in names]
    return tuple([await check_provider(model.provider, name, model.options) for model, name in asked])


def _overrides(order: ServeOptions) -> CliOverrides:
    return CliOverrides(
        order.bus,
        order.host,
        order.port,
        order.drain,
        order.model,
        order.provider,
        order.options,
        order.origins,
        order.key,
        order.allow_credentials,
        order.additional_models,
        order.on_demand,
    )


def _configure(order: ServeOptions, config: Config) -> Config:
    config = _overrides(order).apply(config)
    if order.workers is not None:
        check_workers(order, config.bus.url)
    if config.bus.url == "memory://" and set(order.parts) != {*order.services, GATEWAY}:
        raise BadRequest("memory:// reaches no other process: with --only, give --bus pulsar://HOST:6650 as well")
    return config


def _would_run(order: ServeOptions, config: Config) -> str:
    source = "the built-in configuration" if config.source is None else str(config.source.file)
    gateway = f"http://{config.gateway.host}:{config.gateway.port}/, auth {config.gateway.auth}"
    parts = [*_summarize(_load_kinds(order), config), *([f"{GATEWAY} ({gateway})"] if GATEWAY in order.parts else [])]
    return f"ok: {source} would serve {', '.join(parts)}, on {config.bus.url}, which answers"


def _summarize(kinds: Mapping[str, ServiceKind], config: Config) -> list[str]:
    return [f"{name} ({kind.summarize(config)})" for name, kind in kinds.items()]
