"""Edits of the configuration -> processors: what an edit changes is opened beside the old ones, which end after it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any

import structlog
from typing_extensions import override

from tg_base.config import Config
from tg_base.runtime import is_set_within, translate_defects
from tg_base.server.processor import Processor
from tg_base.server.service import Service
from tg_schema import TgError
from tg_schema.errors import Cancelled, Internal

log = structlog.get_logger()

Processors = AbstractAsyncContextManager[tuple[Processor, ...]]
"""Opens processors, which serve while its block runs."""


class Opening:
    """Processors that are opened together, and serve until they are replaced.

    Args:
        log: gets the line `close_failed` if they fail once they are replaced.
        close_failed: the name of that line.
        defects: translates the defects of what they are made of, which may be third-party code.

    Attributes:
        processors: None until they are open, and if they cannot be opened.
        error: why they are not open.
        settled: set when they are open, or cannot be opened.
        handed_over: set when they are replaced and take no more requests from queues that others read.
    """

    def __init__(self, log: Any, close_failed: str, defects: AbstractContextManager[object]) -> None:
        self.processors: tuple[Processor, ...] | None = None
        self.error: TgError = Cancelled("it was not opened")
        self.settled, self.handed_over = asyncio.Event(), asyncio.Event()
        self._log = log
        self._close_failed = close_failed
        self._defects = defects
        self._replaced = asyncio.Event()
        self._left: Collection[str] = ()

    @property
    def queues(self) -> frozenset[str]:
        """The queues that they read."""
        return frozenset(queue for processor in self.processors or () for queue in processor.queues)

    async def run(self, opened: Processors) -> None:
        """Serve until cancelled or, if replaced, until the last request has ended.

        Raises what ends a processor that is open. Once it is replaced, its failure is only logged: others serve.
        """
        try:
            with self._defects:
                async with opened as self.processors:
                    self.settled.set()
                    await self._replaced.wait()
                    await asyncio.gather(*(processor.hand_over(self._left) for processor in self.processors))
                    self.handed_over.set()
                    await asyncio.gather(*(processor.retire(self._left) for processor in self.processors))
        except TgError as error:
            if self._replaced.is_set():
                self._log.error(self._close_failed, reason=error.message)
            elif self.settled.is_set():
                raise
            self.error = error
        finally:
            self.handed_over.set()

    def replace(self, left: Collection[str] = ()) -> None:
        """Take no more requests, a little later from queues that are `left` to nobody else (`Processor.retire`)."""
        self._left = left
        self._replaced.set()

    async def close(self, service: Service[Any, Any]) -> None:
        """Close a service that could not begin. Its failure is only logged: there is an earlier error."""
        try:
            with self._defects:
                await service.aclose()
        except TgError as error:
            self._log.error(self._close_failed, reason=error.message)


class EditedProcessors(ABC):
    """Processors that follow the edits of a file, each opening in a task of its own.

    Args:
        config: the configuration in force.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._edited = asyncio.Event()
        self._trying: asyncio.Task[None] | None = None

    @abstractmethod
    def _find_parts(self, config: Config) -> object:
        """What is opened for a configuration; the same for two that need the same."""

    @abstractmethod
    def _is_served(self, config: Config) -> bool:
        """Whether everything is open as this configuration has it."""

    @abstractmethod
    async def _open(self, config: Config) -> None:
        """Open what this configuration changes, and replace what was there; it may be cancelled."""

    @property
    def _pause(self) -> float | None:
        """Seconds after which to look again without an edit; None = never."""
        return None

    def _commit(self, config: Config) -> None:
        # What is being opened may hang or fail: an edit that corrects it must not wait.
        if self._trying is not None and self._find_parts(config) != self._find_parts(self._config):
            self._trying.cancel()
        self._config = config
        self._edited.set()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        """Tasks may be started within the block, and end with it."""
        try:
            async with asyncio.TaskGroup() as self._group:
                tasks = self._tasks = set[asyncio.Task[None]]()
                try:
                    yield
                finally:
                    for task in tasks:
                        # A second cancellation would interrupt the draining that the first one began.
                        if not task.cancelling():
                            task.cancel()
        # Callers expect the error itself; all other tasks were cancelled because of it.
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(self) -> None:
        while True:
            await is_set_within(self._edited, self._pause)
            self._edited.clear()
            # Opening takes time: edits that arrive meanwhile set the event again, and only the last one counts.
            config = self._config
            if not self._is_served(config):
                self._trying = self._start(self._open(config))
                await asyncio.wait([self._trying])

    async def _serve(self, opening: Opening, opened: Processors, name: str | None = None) -> None:
        """Return when it is open, in a task of its own: the bus cancels a task whose subscription fails.

        Raises:
            TgError: it cannot be opened.
        """
        task = self._start(opening.run(opened), name)
        # Not in the task: one that is cancelled early does not run at all.
        task.add_done_callback(lambda _: opening.settled.set())
        try:
            await opening.settled.wait()
        except asyncio.CancelledError:
            opening.replace()
            if opening.processors is None and not task.cancelling():
                task.cancel()
            raise
        if opening.processors is None:
            raise opening.error

    def _start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """A task that ends when the serving ends."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ServiceEdits(EditedProcessors):
    """The processors of one kind of service. If an edit changes what they are made of, all are opened anew.

    The new ones take all further requests, and the old ones end with their last request. If the new ones cannot be
    opened, the old ones stay, and the log says why.

    Args:
        config: the configuration in force.
        service: the kind's name, for the log.
        open_all: opens all services of the kind as a configuration has them, each with its processor.
        find_parts: what they are made of.
    """

    def __init__(
        self,
        config: Config,
        service: str,
        open_all: Callable[[Config, Opening], Processors],
        find_parts: Callable[[Config], object],
    ) -> None:
        super().__init__(config)
        self._log = log.bind(service=service)
        self._open_all = open_all
        self._parts_of = find_parts
        self._opening = self._make_opening()
        self._served = config

    def _make_opening(self) -> Opening:
        defect = "a service has a defect; the log says which"
        defects = translate_defects(Internal, defect, "service.defect", self._log)
        return Opening(self._log, "services.close_failed", defects)

    @override
    def _find_parts(self, config: Config) -> object:
        return self._parts_of(config)

    @override
    def _is_served(self, config: Config) -> bool:
        return self._parts_of(config) == self._parts_of(self._served)

    def prepare(self, config: Config) -> Callable[[], None]:
        """The commit of an edit, which has the services opened in the background."""
        return lambda: self._commit(config)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[tuple[Processor, ...]]:
        """Serve while the block runs.

        Raises:
            TgError: a service cannot be opened.
        """
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
