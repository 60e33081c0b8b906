"""Callers -> a few worker processes -> callers: starts them when they are needed, and ends them when they are not."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tg_base.runtime.tasks import start_task
from tg_base.runtime.worker_process import ENDED, Answer, WorkerProcess
from tg_schema.errors import Internal, Timeout, Unavailable

Result = TypeVar("Result")

CALL_SECONDS: Final = 60.0
"""Seconds that one call may take, if its caller does not say otherwise; then the process is ended."""
TURN_SECONDS: Final = 60.0
"""Seconds that a call may wait for a process to be free."""
IDLE_SECONDS: Final = 300.0
"""Seconds without a call after which the processes are ended, for their memory."""


async def _answer_nothing(question: Any) -> Any:
    raise Internal("a worker process asked a question that has no handler")


class WorkerPool:
    """At most `size` worker processes; further calls wait in turn. Used and closed on one loop.

    Args:
        size: processes at the same time. None is started before the first call.
    """

    def __init__(self, size: int = 1) -> None:
        self._turns = asyncio.Semaphore(size)
        self._free: list[WorkerProcess] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._retiring: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        answer: Answer = _answer_nothing,
        seconds: float = CALL_SECONDS,
    ) -> Result:
        """Call a function of an importable module in another process, and return its result.

        A cancelled caller leaves at once; its call runs to its end, and the result is dropped.

        Args:
            function: called there. Its log lines are logged here.
            arguments: picklable.
            answer: answers the questions that the function asks with `ask_caller`.
            seconds: how long the call may take, the start of its process included.

        Raises:
            TgError: as the function raises.
            Unpicklable: see there.
            WorkerEnded: its process ended.
            Unavailable: no process can be started, none was free within `TURN_SECONDS`, or this is closed.
            Timeout: it took more than `seconds`.
        """
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            raise Unavailable("too many requests wait for a worker process; ask again", retry_after=1.0) from None
        if self._closed:
            self._turns.release()
            raise Unavailable(ENDED)
        task = asyncio.create_task(self._call(function, arguments, answer, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._end_call)
        result: Result = await asyncio.shield(task)
        return result

    async def aclose(self) -> None:
        """End all processes; calls that run are cancelled, and those that wait are refused."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._retiring is not None:
            self._retiring.cancel()
        await self._retire()

    async def _call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Answer, seconds: float
    ) -> Any:
        if self._retiring is not None:
            self._retiring.cancel()
        try:
            async with asyncio.timeout(seconds):
                worker = await self._take()
                try:
                    return await worker.call(function, arguments, answer)
                finally:
                    if worker.busy:
                        await worker.aclose()
                    else:
                        self._free.append(worker)
        except TimeoutError:
            raise Timeout("a request took a worker process too long; send a smaller one") from None
        finally:
            self._retiring = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._retire_idle)

    async def _take(self) -> WorkerProcess:
        while self._free:
            worker = self._free.pop()
            if worker.alive:
                return worker
            # The process ended between two calls, for instance because the system had no memory left.
            await worker.aclose()
        return await WorkerProcess.start()

    def _end_call(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._turns.release()
        if not task.cancelled():
            # The caller may have left: asyncio would log an error that nobody has retrieved.
            task.exception()

    def _retire_idle(self) -> None:
        if not self._tasks:
            start_task(self._tasks, self._retire())

    async def _retire(self) -> None:
        while self._free:
            await self._free.pop().aclose()
