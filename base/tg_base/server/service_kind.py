"""Configuration -> running processors: how a process can run a kind of service, and what the kind gets to run it."""

from abc import ABC
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

from tg_base.bus import Bus
from tg_base.config import Config, ConfigWatcher, Findings, Prepare, ServiceConfig
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server.host import Host
from tg_base.server.processor import Processor
from tg_base.server.service import Service
from tg_base.server.service_edits import Opening, ServiceEdits

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Opened:
    """A service that is ready, the routes that it answers, and the models that its processor announces."""

    service: Service[Any, Any]
    routes: tuple[Route[Any, Any], ...]
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServeContext:
    """What a kind of service may use to run.

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

    @classmethod
    def of(cls, file: ConfigWatcher, bus: Bus, timing: HeartbeatTiming | None = None) -> Self:
        """The context of a file without overrides."""
        return cls(file.config, bus, file.follow, timing)

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
            context: what may be used.
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
        """What the services are made of: if an edit changes it, all are opened anew, beside the old ones."""
        return config.bound(self.table)

    @asynccontextmanager
    async def serve(self, context: ServeContext) -> AsyncIterator[tuple[Processor, ...]]:
        """Serve while the block runs, with one processor for each service that `open` yields.

        Yields the processors of the beginning.

        Raises:
            TgError: as `open`.
        """
        service = "" if self.table.spec is None else self.table.spec.name
        edits = ServiceEdits(
            context.config,
            service,
            lambda config, opening: self._open_all(replace(context, config=config), opening),
            self.find_parts,
        )
        with context.follow(edits.prepare):
            async with edits.serve() as processors:
                yield processors

    @asynccontextmanager
    async def _open_all(self, context: ServeContext, opening: Opening) -> AsyncIterator[tuple[Processor, ...]]:
        async with AsyncExitStack() as stack:
            async with aclosing(self.open(context, stack)) as opened:
                processors = [await context.begin(one, opening, stack) async for one in opened]
            yield tuple(processors)
