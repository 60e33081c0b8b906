"""Python tool -> thread: runs a blocking function that may never return, away from the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

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
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        self._running += 1

        def settle(value: Any, error: BaseException | None) -> None:
            self._running -= 1
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        # In the caller's context, so that what the function logs carries the request's ids.
        in_context, call = copy_context().run, (_run, function, loop, settle)
        threading.Thread(target=in_context, args=call, name=f"tool {self._tool}", daemon=True).start()
        return await result


def _run(
    function: Callable[[], Any], loop: asyncio.AbstractEventLoop, settle: Callable[[Any, BaseException | None], None]
) -> None:
    value: Any = None
    error: BaseException | None = None
    try:
        value = function()
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the thread ends here; whoever awaits the result gets it
        error = raised
    if isinstance(error, StopIteration | SystemExit):
        error = RuntimeError(f"the function raised {type(error).__name__}")
    with contextlib.suppress(RuntimeError):  # the loop may have ended before the function
        loop.call_soon_threadsafe(settle, value, error)
