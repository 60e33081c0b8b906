"""Blocking function -> daemon thread: for a function that may never return, and must not keep the process alive."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


def start_daemon_thread(function: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """Call `function` in a new daemon thread with the caller's context; needs a running loop.

    Args:
        function: may block. Nothing stops it; at the end of the process it is abandoned.
        name: the thread's name.

    Returns:
        What the function returns or raises. Cancelling this future abandons the function, which runs on.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            value = function()
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the thread ends here; its error is the result
            # A future refuses a StopIteration; a SystemExit would end the loop.
            wrong = isinstance(raised, StopIteration | SystemExit)
            error = RuntimeError(f"the function raised {type(raised).__name__}") if wrong else raised
            settle(lambda: _fail(result, error))
        else:
            settle(lambda: result.set_result(value))

    def settle(give: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended before the function
            loop.call_soon_threadsafe(lambda: None if result.done() else give())

    # In the caller's context, so that what the function logs carries the request's ids.
    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return result


def _fail(result: asyncio.Future[Result], error: BaseException) -> None:
    result.set_exception(error)
    result.exception()  # asyncio would log the error of a call that nobody awaits any more
