"""Configuration -> running processors: how a process can run a kind of service, and what the kind gets for that."""

from abc import ABC
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.config import Config, Findings, Prepare, ServiceConfig
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.runtime import translate_defects
from tg_base.server.host import Host
from tg_base.server.processor import Processor
from tg_base.server.service import Service
from tg_base.server.service_edits import EditedProcessors, Opening
from tg_schema import TgError
from tg_schema.errors import Internal

log = structlog.get_logger()

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Opened:
    """A service that is ready, the routes that it answers, and the models that its processor announces."""

    service: Service[Any, Any]
    routes: tuple[Route[Any, Any], ...]
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServeContext:
    """The resources that a kind of service may use to run.

    Attributes:
        config: the configuration of this process: the file with the overrides of the command line.
        bus: where the requests come from.
        follow: registers a function to be called at every edit of the file, until its block is left.
        timing: the heartbeat interval, and when a silent requestor counts as dead; None = the default.
        host: what all processors of the process share; None = each has its own.
    """

    config: Config
    bus: Bus
    follow: Callable[[Prepare], AbstractContextManager[None]]
    timing: HeartbeatTiming | None = None
    host: Host | None = None

    def follow_part(self, read: Callable[[Config], Part], use: Callable[[Part], None]) -> AbstractContextManager[None]:
        """At every edit of the file, call `use` with the result of `read`; if `read` raises, the edit is refused."""

        def prepare(config: Config) -> Callable[[], None]:
            part = read(config)
            return lambda: use(part)

        return self.follow(prepare)

    async def begin(self, opened: Opened, opening: Opening, stack: AsyncExitStack) -> Processor:
        """Begin to serve with a processor that is left with `stack`. It closes its service, also if it cannot begin."""
        processor = Processor(
            self.bus,
            self.config.topics,
            opened.service,
            opened.routes,
            models=opened.models,
            timing=self.timing,
            grace=self.config.gateway.drain,
            host=self.host,
        )
        async with AsyncExitStack() as failed:
            # A processor closes its service, but only one that has begun.
            failed.push_async_callback(opening.close, opened.service)
            await stack.enter_async_context(processor)
            failed.pop_all()
        return processor


class ServiceKind(ABC):
    """One kind of service, declared once: its table in the configuration, and how its processors are made.

    `tg-serve` finds kinds by the entry points `tokengrid.services`, and by `[services]` of its configuration.
    """

    table: ClassVar[type[ServiceConfig]]
    """Its table in a flow's configuration. The table's `spec` has the service's name and records."""

    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        """Yield a ready service for each binding of the flows; each begins to serve before the next is opened.

        Override it or, where processors come and go with the edits of the file, `serve`.

        Args:
            context: the resources that may be used.
            stack: closes what the services share, when the last processor has ended.

        Raises:
            TgError: a service cannot be opened; the message names its place in the file.
        """
        for opened in tuple[Opened, ...]():
            yield opened

    async def rehearse(self, context: ServeContext, findings: Findings) -> None:  # noqa: B027 - most have nothing to rehearse
        """Find all errors that `open` would raise, without opening; used by a check of the configuration."""

    def summarize(self, config: Config) -> str:
        """What a process serves of this kind, in a few words; while it serves, also what has failed."""
        return ", ".join(config.bound(self.table)) or "no flow has it"

    def routes(self, config: Config) -> tuple[Route[Any, Any], ...]:
        """The flows' routes to this service that our own processors serve (not plain peers)."""
        spec = self.table.spec
        return () if spec is None else tuple(route for route in config.routes(spec.name) if not route.plain)

    def find_parts(self, config: Config) -> object:
        """The services' parts. If an edit changes one, all services are opened anew, next to the old ones."""
        return config.bound(self.table)

    @asynccontextmanager
    async def serve(self, context: ServeContext) -> AsyncIterator[tuple[Processor, ...]]:
        """Serve while the block runs, with one processor for each service that `open` yields.

        Yields the processors that serve at the beginning.

        Raises:
            TgError: as `open`.
        """
        async with _KindProcessors(self, context).serve() as processors:
            yield processors


class _KindProcessors(EditedProcessors):
    """The processors of one kind of service. If an edit changes their parts, all services are opened anew.

    The new ones take all further requests, and the old ones end with their last request. If the new ones cannot be
    opened, the old ones stay, and the log says why.
    """

    def __init__(self, kind: ServiceKind, context: ServeContext) -> None:
        super().__init__(context.config)
        self._kind, self._context = kind, context
        self._log = log.bind(service="" if kind.table.spec is None else kind.table.spec.name)
        self._opening, self._served = self._make_opening(), context.config

    def _make_opening(self) -> Opening:
        defect = "a service has a defect; the log says which"
        defects = translate_defects(Internal, defect, "service.defect", self._log)
        return Opening(self._log, "services.close_failed", defects)

    @override
    def _find_parts(self, config: Config) -> object:
        return self._kind.find_parts(config)

    @override
    def _is_served(self, config: Config) -> bool:
        return self._find_parts(config) == self._find_parts(self._served)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[tuple[Processor, ...]]:
        with self._context.follow(lambda config: lambda: self._commit(config)):
            async with self._serving():
                await self._serve(self._opening, self._open_all(self._served, self._opening))
                self._start(self._follow())
                yield self._opening.processors or ()

    @override
    async def _open(self, config: Config) -> None:
        old, new = self._opening, self._make_opening()
        try:
            await self._serve(new, self._open_all(config, new))
        except TgError as error:
            self._log.error("services.refused", reason=error.message)
            return
        self._opening, self._served = new, config
        old.replace(old.queues - new.queues)
        try:
            await old.handed_over.wait()
        finally:
            self._log.info("services.in_force")

    @asynccontextmanager
    async def _open_all(self, config: Config, opening: Opening) -> AsyncIterator[tuple[Processor, ...]]:
        context = replace(self._context, config=config)
        async with AsyncExitStack() as stack:
            async with aclosing(self._kind.open(context, stack)) as opened:
                processors = [await context.begin(one, opening, stack) async for one in opened]
            yield tuple(processors)
