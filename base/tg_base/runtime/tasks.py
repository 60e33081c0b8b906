"""Work that runs beside what an object does, for exactly as long as the object is entered."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

import structlog

log = structlog.get_logger()


@asynccontextmanager
async def running(
    work: Coroutine[Any, Any, None], *, context: Context | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` as a task until the block is left, then cancel it and wait for its end.

    Args:
        work: what to run.
        context: an empty one where the work outlives the request that it is begun by, and is no part of it; None = the
            caller's.
    """
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(report)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def report(task: asyncio.Task[None]) -> None:
    """For a task's done callback: what ended it unforeseen stands in the log, never silently lost."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("task.died", task=task.get_name(), exc_info=error)
