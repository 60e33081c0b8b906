"""Servers of the pools -> one task for each, which runs as long as the server is there."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, Generic, TypeVar

from tg_base.runtime import report

Key = TypeVar("Key", bound=Hashable)


class ServerTasks(Generic[Key]):
    """The tasks, by a key that identifies each server."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def update(self, wanted: Mapping[Key, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Start tasks for new servers, and cancel the tasks of servers that are no longer wanted."""
        for key in self._tasks.keys() - wanted.keys():
            task = self._tasks.pop(key)
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for key, work in wanted.items():
            if key not in self._tasks:
                task = self._tasks[key] = asyncio.create_task(work())
                task.add_done_callback(report)

    async def aclose(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.update({})
        if self._ending:
            await asyncio.wait(self._ending)
