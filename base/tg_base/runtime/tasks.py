"""Coroutine -> background task that ends with its owner."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final

import structlog

log = structlog.get_logger()

LATE_SECONDS: Final = 0.001
"""Added to the time of a timer that checks whether it is due. uvloop may fire a timer half of this too early, and the
check would then set it anew over and over."""


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


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Return True once an event is set; False after `seconds` (None = wait for ever)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def start_task(
    tasks: set[asyncio.Task[Any]],
    work: Coroutine[Any, Any, object],
    *,
    name: str | None = None,
    context: Context | None = None,
) -> asyncio.Task[Any]:
    """Run `work` as a task that is in `tasks` until it ends: asyncio itself keeps no reference to a running task."""
    task = asyncio.create_task(work, name=name, context=context)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(report)
    return task


def report(task: asyncio.Task[Any]) -> None:
    """Done callback of a task: log the exception that ended it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("task.died", task=task.get_name(), exc_info=error)
