"""Ctrl-C -> one piece of work, and nothing but it."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def run_interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Do something that Ctrl-C stops; then this returns as if it were done. Raises what the work raises."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name="interruptible")
    # In place of asyncio's own handler, which would cancel the whole program.
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()
    if not task.cancelled():
        task.result()
