"""Python tool -> thread: runs a blocking function that may never return, away from the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from tg_base.runtime import start_daemon_thread
from tg_schema.errors import Unavailable

MAX_CONCURRENT_CALLS = 16
"""Threads of one tool; an abandoned call counts until its function returns."""


class ThreadCalls:
    """Calls of one tool, each in a daemon thread, which does not keep the process from ending."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._running = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Return or raise what the function returns or raises. After a cancel, nothing waits for it.

        Raises:
            Unavailable: too many earlier calls have not returned.
        """
        if self._running >= MAX_CONCURRENT_CALLS:
            raise Unavailable(f"{MAX_CONCURRENT_CALLS} earlier calls of {self._tool} have not come back; ask later")
        self._running += 1
        result = start_daemon_thread(function, f"tool {self._tool}")
        result.add_done_callback(self._end)
        # Cancelled with the wait, it would count as returned while its thread runs on.
        return await asyncio.shield(result)

    def _end(self, _: asyncio.Future[Any]) -> None:
        self._running -= 1
