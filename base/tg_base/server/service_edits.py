"""Edits of the configuration -> processors: an edit opens changed services beside the old ones, which end then."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any

from tg_base.config import Config
from tg_base.runtime import is_set_within
from tg_base.server.processor import Processor
from tg_base.server.service import Service
from tg_schema import TgError
from tg_schema.errors import Cancelled

Processors = AbstractAsyncContextManager[tuple[Processor, ...]]
"""Opens processors, which serve while its block runs."""


class Opening:
    """Processors that are opened together, and serve until they are replaced.

    Args:
        log: gets the line `close_failed` if they fail once they are replaced.
        close_failed: the name of that log line.
        defects: translates the defects of their services, which may be third-party code.

    Attributes:
        processors: the open processors; None until then, or if they cannot be opened.
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

        Raises the error that ends a processor that is open. Once it is replaced, its failure is only logged: others
        serve.
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
        """Take no more requests; read queues that are `left` to nobody else a little longer (`Processor.retire`)."""
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
        """The processors' parts for a configuration; equal for two configurations that need the same processors."""

    @abstractmethod
    def _is_served(self, config: Config) -> bool:
        """Whether everything is open as this configuration has it."""

    @abstractmethod
    async def _open(self, config: Config) -> None:
        """Open what this configuration changes, and replace the old processors; it may be cancelled."""

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
        """Open and serve in a separate task; return once it is open. The bus cancels the task whose subscription fails.

        Raises:
            TgError: it cannot be opened.
        """
        task = self._start(opening.run(opened), name)
        # Do not set it in the task: a task that is cancelled early does not run at all.
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
