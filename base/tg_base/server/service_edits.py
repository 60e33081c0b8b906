"""Edits of the flows -> a kind's processors: what they change is opened beside the old ones, which end after it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from tg_base.config import Config
from tg_base.runtime import translate_defects
from tg_base.server.processor import Processor
from tg_schema import TgError
from tg_schema.errors import Internal

log = structlog.get_logger()

OpenAll = Callable[[Config], AbstractAsyncContextManager[tuple[Processor, ...]]]
"""Opens all services of a kind as a configuration has them, each with its processor."""


@dataclass(eq=False, slots=True)
class _Opening:
    """Services that are opened together; `processors` is None until they are open, and if they cannot be opened."""

    processors: tuple[Processor, ...] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    left: frozenset[str] = frozenset()
    """Queues that the services which replace these do not read."""

    @property
    def queues(self) -> frozenset[str]:
        return frozenset(queue for processor in self.processors or () for queue in processor.queues)

    def settle(self, task: asyncio.Task[None]) -> None:
        """Done callback of the task that opens them; one that is cancelled early does not run at all."""
        self.settled.set()


class ServiceEdits:
    """The processors of one kind of service. If an edit changes what they are made of, all are opened anew.

    The new ones take all further requests, and the old ones end with their last request. If the new ones cannot be
    opened, the old ones stay, and the log says why.

    Args:
        service: the kind's name, for the log.
        open_all: opens them.
        find_parts: what they are made of.
    """

    def __init__(self, service: str, open_all: OpenAll, find_parts: Callable[[Config], object]) -> None:
        self._log = log.bind(service=service)
        self._open_all = open_all
        self._find_parts = find_parts
        self._edited = asyncio.Event()
        self._config: Config
        self._trying: asyncio.Task[None] | None = None

    def prepare(self, config: Config) -> Callable[[], None]:
        """The commit of an edit, which has the services opened in the background."""

        def commit() -> None:
            # What is being opened may hang: an edit that corrects it must not wait.
            if self._trying is not None and self._find_parts(config) != self._find_parts(self._config):
                self._trying.cancel()
            self._config = config
            self._edited.set()

        return commit

    @asynccontextmanager
    async def serve(self, config: Config) -> AsyncIterator[tuple[Processor, ...]]:
        """Serve while the block runs.

        Raises:
            TgError: a service cannot be opened.
        """
        try:
            async with asyncio.TaskGroup() as self._group:
                tasks, opening = set[asyncio.Task[None]](), _Opening()
                self._tasks = tasks
                try:
                    # In tasks of their own: the bus cancels the task that entered a subscription when that fails.
                    self._start(self._run(config, opening))
                    await opening.settled.wait()
                    self._start(self._follow(config, opening))
                    yield opening.processors or ()
                finally:
                    for task in tasks:
                        # A second cancellation would interrupt the draining that the first one began.
                        if not task.cancelling():
                            task.cancel()
        # Callers expect the error itself; all other tasks were cancelled because of it.
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(self, config: Config, opening: _Opening) -> None:
        while True:
            await self._edited.wait()
            self._edited.clear()
            edited, new = self._config, _Opening()
            if self._find_parts(edited) == self._find_parts(config):
                continue
            self._trying = self._start(self._try(edited, new))
            self._trying.add_done_callback(new.settle)
            await new.settled.wait()
            if new.processors is not None:
                opening.left = opening.queues - new.queues
                opening.replaced.set()
                config, opening = edited, new
                self._log.info("services.in_force")

    async def _try(self, config: Config, opening: _Opening) -> None:
        """`_run`, but without an end of the others if the services cannot be opened."""
        try:
            await self._run(config, opening)
        except TgError as error:
            if opening.processors is not None:
                raise
            self._log.error("services.refused", reason=error.message)

    async def _run(self, config: Config, opening: _Opening) -> None:
        """Open services, and serve until they are replaced. Once they are, a failure is only logged: others serve."""
        defect = "a service has a defect; the log says which"
        try:
            with translate_defects(Internal, defect, "service.defect", self._log):
                async with self._open_all(config) as processors:
                    opening.processors, self._trying = processors, None
                    opening.settled.set()
                    await opening.replaced.wait()
                    await asyncio.gather(*(processor.retire(opening.left) for processor in processors))
        except TgError as error:
            if not opening.replaced.is_set():
                raise
            self._log.error("services.close_failed", reason=error.message)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that ends when the serving ends."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
