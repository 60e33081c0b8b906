"""Configuration -> running processors: what a service says of itself, once, so that a process can run it."""

from abc import ABC
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tg_base.config import Config, Findings, ServiceConfig
from tg_base.protocol import Route
from tg_base.server.processor import Processor
from tg_base.server.serve_context import ServeContext
from tg_base.server.service import Service


@dataclass(frozen=True, slots=True)
class Opened:
    """A service that is ready, the routes that it answers, and the models that its processor announces."""

    service: Service[Any, Any]
    routes: tuple[Route[Any, Any], ...]
    models: tuple[str, ...] = ()


class ServiceKind(ABC):
    """One kind of service, declared once: its table in the configuration, and how its processors are made.

    `tg_serve.options.SERVICES` lists the kinds that `tg-serve` runs.
    """

    table: ClassVar[type[ServiceConfig]]
    """What a flow says of it; its `spec` says what the service is called and which records it takes."""

    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        """Make ready what the flows bind, one service after the other; each begins to serve before the next one.

        Override it or, where processors come and go with the edits of the file, `serve`.

        Args:
            context: what may be used.
            stack: left when the last processor has ended; it closes what the services share.

        Raises:
            TgError: one cannot be made ready; the message has its place in the file.
        """
        for opened in tuple[Opened, ...]():
            yield opened

    async def rehearse(self, context: ServeContext, findings: Findings) -> None:  # noqa: B027 - most have nothing to rehearse
        """Find all for which `open` would raise, without its costs; what a check of the configuration does."""

    def summarize(self, config: Config) -> str:
        """What of it a process serves, in a few words; once it serves, also what of it has failed."""
        return ", ".join(config.bound(self.table)) or "no flow has it"

    def routes(self, config: Config) -> tuple[Route[Any, Any], ...]:
        """The flows' routes to it that are served by processors of ours."""
        spec = self.table.spec
        return () if spec is None else tuple(route for route in config.routes(spec.name) if not route.plain)

    @asynccontextmanager
    async def serve(self, context: ServeContext) -> AsyncIterator[tuple[Processor, ...]]:
        """Serve while the block runs, with one processor for each service that `open` yields.

        Raises:
            TgError: as `open`.
        """
        async with AsyncExitStack() as stack:
            async with aclosing(self.open(context, stack)) as opened:
                processors = [await _start(context, one, stack) async for one in opened]
            yield tuple(processors)


async def _start(context: ServeContext, opened: Opened, stack: AsyncExitStack) -> Processor:
    service, topics = opened.service, context.config.topics
    async with AsyncExitStack() as failed:
        # A processor closes its service, but only one that has begun.
        failed.push_async_callback(service.aclose)
        processor = Processor(
            context.bus,
            topics,
            service,
            opened.routes,
            models=opened.models,
            timing=context.timing,
            grace=context.config.gateway.drain,
            host=context.host,
        )
        await stack.enter_async_context(processor)
        failed.pop_all()
        return processor
