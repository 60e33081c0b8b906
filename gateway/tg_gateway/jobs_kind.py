"""`tg-serve --only jobs` -> the process that makes responses in the background, in place of the gateways."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from typing_extensions import override

from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, ServiceConfig
from tg_base.protocol import Presence
from tg_base.runtime import running
from tg_base.server import Host, Processor, ServeContext, ServiceKind
from tg_gateway.access import Limits, Payers, RateLimits, find_callers
from tg_gateway.dialects import Catalogue
from tg_gateway.jobs import JobLogs, JobQueue, JobRuns
from tg_gateway.relay import LivePart, OtherGateways, Relay
from tg_schema import ServiceSpec, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest

JOBS: Final = ServiceSpec("jobs", TextCompletionRequest, TextCompletionResponse)
"""The service has no requests of its own: it takes messages of the gateways."""


class JobsConfig(ServiceConfig, frozen=True):
    """No flow has it: the part `jobs` serves all flows, after the gateway's table."""

    spec = JOBS
    awaited = False

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        yield config.fault("no flow binds jobs: run tg-serve --only jobs, and remove this", "flows", flow, JOBS.name)


class JobsKind(ServiceKind):
    """The part `jobs`. It follows edits of keys, limits and routes.

    Args:
        limits: the limits for responses that are made in the background.
    """

    table = JobsConfig

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    @override
    def summarize(self, config: Config) -> str:
        return "responses in the background"

    @override
    @asynccontextmanager
    async def serve(self, context: ServeContext) -> AsyncIterator[tuple[Processor, ...]]:
        config, gateway = context.config, context.config.gateway
        routes = config.all_routes
        queues = tuple(route.request for route in routes if not route.plain)
        callers, payers = find_callers(gateway), Payers(gateway)
        rate_limits = RateLimits(gateway, time.monotonic)
        async with AsyncExitStack() as stack:
            host = context.host
            if host is None:
                host = await stack.enter_async_context(Host(context.bus, config.topics))
            requestor = await stack.enter_async_context(
                Requestor(context.bus, config.topics, queues=queues, plans=config.plans)
            )
            relay = Relay(requestor, gateway.request_timeout, rate_limits, callers, payers)
            runs = JobRuns(relay, JobLogs.of(requestor, self._limits), self._limits)
            catalogue = Catalogue.of(requestor, routes, gateway)
            name = host.name_processor()
            queue = JobQueue(requestor, runs, catalogue, self._limits, name=name)
            part, keyed = LivePart(requestor, relay, catalogue, JOBS.name), _is_keyed(gateway)
            # This part answers gateways that ask for the live view.
            OtherGateways(requestor, part, lambda: keyed)

            def prepare(edited: Config) -> Callable[[], None]:
                def commit() -> None:
                    nonlocal keyed
                    # As in a gateway: a file that was emptied by mistake must not admit everybody.
                    keyed = keyed or _is_keyed(edited.gateway)
                    callers.clear()
                    callers.update(find_callers(edited.gateway))
                    rate_limits.update(edited.gateway)
                    payers.update(edited.gateway)
                    requestor.routes.replace(edited.plans)
                    queue.catalogue = part.catalogue = Catalogue.of(requestor, edited.all_routes, edited.gateway)

                return commit

            stack.enter_context(context.follow(prepare))
            await stack.enter_async_context(running(part.mark()))
            await stack.enter_async_context(queue)

            def describe() -> Presence:
                topics = tuple(map(config.topics.jobs, queue.catalogue.flows))
                return Presence(name, topics, self._limits.all_background, queue.in_flight)

            host.add(name, describe)
            await host.announce()
            try:
                yield ()
            finally:
                host.remove(name)
                await host.announce()
                await queue.drain()
                await relay.drain(host.rest_of(gateway.drain))


def _is_keyed(config: GatewayConfig) -> bool:
    """Whether gateways of this table check keys."""
    return config.auth != "off" and bool(config.keys)
