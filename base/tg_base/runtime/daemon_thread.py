"""Blocking function -> daemon thread: for a function that may never return, and must not keep the process alive."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


def start_daemon_thread(function: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """Call `function` in a new daemon thread with the caller's context; needs a running loop.

    Args:
        function: may block. Nothing stops it; at the end of the process it is abandoned.
        name: the thread's name.

    Returns:
        The result of the function, or its exception. Cancelling this future abandons the function, which runs on.
    """
    result: Future[Result] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = function()
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the thread ends here; its error is the result
            # An awaited future refuses a StopIteration; a SystemExit would end the loop.
            wrong = isinstance(raised, StopIteration | SystemExit)
            result.set_exception(RuntimeError(f"the function raised {type(raised).__name__}") if wrong else raised)
        else:
            result.set_result(value)

    awaited = asyncio.wrap_future(result)
    # asyncio would log the error of a call that nobody awaits any more.
    awaited.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    # In the caller's context, so that what the function logs carries the request's ids.
    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return awaited
