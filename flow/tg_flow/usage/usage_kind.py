"""[flows.NAME.usage] -> the reader of all usage on the bus, and the processor that answers questions about it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog
from typing_extensions import override

from tg_base.config import Config, ServiceConfig
from tg_base.runtime import running
from tg_base.server import Opened, ServeContext, ServiceKind
from tg_flow.usage.known_prices import find_costs, is_installed
from tg_flow.usage.prices import Prices
from tg_flow.usage.usage_database import UsageDatabase
from tg_flow.usage.usage_reader import UsageReader, UsageTopic
from tg_flow.usage.usage_service import UsageService
from tg_flow.usage.usage_store import UsageStore
from tg_schema.errors import BadRequest, Unavailable
from tg_schema.service_spec import USAGE

log = structlog.get_logger()

FLUSH_SECONDS: Final = 1.0

_URL: Final = re.compile(
    r"postgres(?:ql)?://(?:[^/:@?#]+@)?(?:\[[0-9A-Fa-f:]+\]|[^/:@?#\[\]]*)(?::[0-9]{1,5})?/[^/?#]+(?:\?(?!.*password).*)?"
)
_URL_ADVICE: Final = (
    "the URL of a database is such as postgresql://user@host:5432/name; do not put the password into it, but into "
    "PGPASSWORD, or into the file that PGPASSFILE names"
)


class UsageConfig(ServiceConfig, frozen=True):
    """The usage service. One flow binds it, on behalf of all flows."""

    spec = USAGE
    awaited = False
    database: str | None = None
    """The file of the sums, or the URL of a PostgreSQL database; None = the sums are in memory, and are lost when the
    process ends."""

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        others = [other for other in config.bound(UsageConfig) if other != flow]
        if others:
            sentence = f'flow "{others[0]}" has {USAGE.name} too; one flow binds it, for all: remove it here'
            yield config.fault(sentence, "flows", flow, USAGE.name)
        if self.database and "://" in self.database and not _URL.fullmatch(self.database):
            # Do not quote the URL, because it may contain a password.
            yield config.fault(_URL_ADVICE, "flows", flow, USAGE.name, "database")


class UsageKind(ServiceKind):
    """Runs the usage service, and follows edits of the prices."""

    table = UsageConfig

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        for flow, bound in context.config.bound(UsageConfig).items():
            routes = tuple(route for route in self.routes(context.config) if route.flow == flow)
            if routes:
                yield Opened(await _open(context, stack, flow, bound.database), routes)


async def _open(context: ServeContext, stack: AsyncExitStack, flow: str, place: str | None) -> UsageService:
    """Start the reader; leaving the stack ends it."""
    try:
        store = await asyncio.to_thread(_choose_store, place)
        await asyncio.to_thread(store.open)
    except Unavailable as error:
        raise context.config.locate(error.at("database"), "flows", flow, USAGE.name) from None
    stack.push_async_callback(asyncio.to_thread, store.close)
    if not store.lasting:
        log.warning("usage.in_memory", reason="no `database` is configured: the sums end with this process")
    prices = Prices(context.config.prices, find_costs if is_installed() else None)
    stack.push_async_callback(prices.aclose)
    stack.enter_context(context.follow_part(lambda config: config.prices, prices.replace))
    topic = await stack.enter_async_context(UsageTopic(context.bus, context.config.topics))
    reader = UsageReader(topic, store, prices)
    if context.bus.in_process:
        stack.push_async_callback(reader.finish)
    await stack.enter_async_context(running(reader.run()))
    if context.host is not None:
        # By now everything that uses models has ended.
        stack.push_async_callback(context.host.usage.flush, FLUSH_SECONDS)
    return UsageService(store)


def _choose_store(place: str | None) -> UsageStore:
    if place is None or "://" not in place:
        return UsageDatabase(Path(place) if place else None)
    try:
        from tg_flow.usage.postgres_database import PostgresDatabase  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        advice = 'PostgreSQL needs a package that is not installed; run: pip install "tokengrid-flow[postgres]"'
        raise Unavailable(advice) from None
    return PostgresDatabase(place)
