"""Signals -> process: runs a service until SIGTERM, SIGINT or SIGHUP, then drains it."""

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from tg_base.server.held_loop import end_if_held
from tg_base.telemetry import TASKS
from tg_schema.errors import Unavailable

T = TypeVar("T")
GC_THRESHOLD_OBJECTS = 20_000
"""Threshold of generation 0; Python's default of 700 cost a busy processor 10 % of its CPU time."""

MIN_OPEN_FILES = 64
"""With fewer descriptors, a process does not start: a gateway with its own model uses about 50 before its first
request."""


@dataclass(frozen=True)
class ProcessEvents:
    """Further events of a process, besides the signals that end it.

    Attributes:
        hangup: called on SIGHUP, in place of a drain.
        ending: called with the first signal that ends it once it serves.
        killed: called when a second one ends the process at once.
        lifeline: a pipe from the parent that carries no data. Its end means the same as SIGINT. With a lifeline, a
            second signal changes nothing: only the parent can end this process at once. None = there is no parent.
    """

    hangup: Callable[[], None] | None = None
    ending: Callable[[int], None] | None = None
    killed: Callable[[], None] | None = None
    lifeline: int | None = None


def serve_process(
    serving: AbstractAsyncContextManager[T],
    ready: Callable[[T], None],
    *,
    events: ProcessEvents = ProcessEvents(),
) -> None:
    """Enter `serving`, call `ready` with its value, and leave it on SIGTERM, SIGINT or SIGHUP, which drains it.

    A signal during entering cancels that. A second SIGTERM or SIGINT ends the process at once, unless a parent decides
    that. A process that was started with SIGHUP ignored, as under nohup, goes on ignoring it. Uses uvloop if it is
    installed. Raises the exceptions of `serving` and `ready`, and Unavailable if the process may open too few files.

    Args:
        serving: the service.
        ready: called with the value that `serving` yields.
        events: further events, each with a function to call.
    """
    _check_open_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_stopped(serving, ready, events))


def _check_open_files() -> None:
    # An event loop that gets no descriptor ends in tracebacks, of which the first is not the cause.
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < MIN_OPEN_FILES:
        raise Unavailable(
            f"this process may have {most} files open, and needs {MIN_OPEN_FILES}, besides one for each connection: "
            "raise the limit before you start it, as with ulimit -n 1024"
        )


async def _until_stopped(
    serving: AbstractAsyncContextManager[T], ready: Callable[[T], None], events: ProcessEvents
) -> None:
    loop = asyncio.get_running_loop()
    TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))
    entered, stop = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        # Watch the loop only once the process serves, since imports and configurations may take long, and until all is
        # drained.
        async with AsyncExitStack() as watched, serving as value:
            entered.set()
            ready(value)
            _collect_less()
            watched.enter_context(end_if_held())
            await stop.wait()

    task = asyncio.create_task(serve())

    def on_signal(number: int) -> None:
        if stop.is_set():
            _end_at_once(number, events)
            return
        stop.set()
        if not entered.is_set():
            task.cancel()
        elif events.ending is not None:
            events.ending(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    # A closing terminal may send SIGHUP twice, through the shell and through the system.
    _follow_hangup(loop, events.hangup or (lambda: None if stop.is_set() else on_signal(signal.SIGHUP)), events)
    if events.lifeline is not None:
        _call_at_end(events.lifeline, lambda: on_signal(signal.SIGINT))
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _follow_hangup(loop: asyncio.AbstractEventLoop, call: Callable[[], None], events: ProcessEvents) -> None:
    # Under nohup SIGHUP is ignored and stays so, unless the caller uses it to restart workers.
    if events.hangup is not None or signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, call)


def _end_at_once(number: int, events: ProcessEvents) -> None:
    # The signal may be the same one twice, sent to all processes of a service and passed on by the parent.
    if events.lifeline is None:
        if events.killed is not None:
            events.killed()
        os._exit(128 + number)


def _call_at_end(lifeline: int, end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        loop.remove_reader(lifeline)
        end()

    loop.add_reader(lifeline, on_end)


def _collect_less() -> None:
    """Exclude the objects that exist now from garbage collection, and collect new ones less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 10, 10)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
