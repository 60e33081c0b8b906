"""Coroutine -> background task that ends with its owner."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final

import structlog

log = structlog.get_logger()

LATE_SECONDS: Final = 0.001
"""Added to the time of a timer that checks whether it is due. uvloop's may fire half of it too early: the check would
set it anew over and over."""


@asynccontextmanager
async def running(
    work: Coroutine[Any, Any, None], *, context: Context | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` as a task until the block is left, then cancel it and wait for its end.

    Args:
        work: the coroutine to run.
        context: the task's context; None = the caller's. Give an empty one for work that outlives the request that
            starts it, so that its log lines do not carry that request's id.
    """
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(report)
    try:
        yield task
    finally:
        task.cancel()
        # `wait` and not `await task`: our own cancellation must not be confused with the task's, and `report` has
        # logged its error.
        await asyncio.wait([task])


def report(task: asyncio.Task[None]) -> None:
    """Done callback of a task: log the exception that ended it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("task.died", task=task.get_name(), exc_info=error)
