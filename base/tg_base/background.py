"""Work that runs beside what an object does, for exactly as long as the object is entered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from tg_base.bus.api import Delivery
from tg_base.metrics import POISON
from tg_schema.errors import BadRequest

log = structlog.get_logger()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` as a task until the block is left, then cancel it and wait for its end."""
    task = asyncio.create_task(work)
    task.add_done_callback(report)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def each(deliveries: AsyncIterator[Delivery], handle: Callable[[Delivery], None], topic: str) -> None:
    """Hand every message to `handle`; one that it refuses with BadRequest is counted and dropped."""
    async for delivery in deliveries:
        try:
            handle(delivery)
        except BadRequest as error:
            POISON.labels(topic).inc()
            log.warning("message.refused", topic=topic, reason=error.message)


def report(task: asyncio.Task[None]) -> None:
    """For a task's done callback: what ended it unforeseen stands in the log, never silently lost."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("task.died", task=task.get_name(), exc_info=error)
