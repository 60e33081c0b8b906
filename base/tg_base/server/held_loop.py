"""Timers of CPU time -> process: ends it if a single task blocks the event loop.

While the loop is blocked, no client gets an answer, peers consider the process dead, and no signal ends it. Only CPU
time counts, so a process that is suspended, starved, or in a debugger is left alone.
"""

import asyncio
import faulthandler
import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

log = structlog.get_logger()

HELD_SECONDS = 5.0
"""CPU time of the loop's thread after which the process ends, together with the work that blocks the loop."""
_LOOKS = 10
"""How often the loop is checked in that time."""
_SHOWN_FRAMES = 4
_STDERR = 2


@contextmanager
def end_if_held() -> Iterator[None]:
    """Within the block, end the process, with one line of the log and exit code 1, if work holds the running loop.

    While a call into C keeps the interpreter for itself, no Python code can check the loop. Then SIGVTALRM kills the
    process after as much CPU time for each core, and a traceback goes to standard error. Call it in the main thread.
    """
    seconds = HELD_SECONDS
    loop, work = asyncio.get_running_loop(), None
    turned_at = time.thread_time()

    def on_turn() -> None:
        nonlocal turned_at
        turned_at = time.thread_time()

    def give_native_time() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds * (os.cpu_count() or 1))

    def on_look(_: int, frame: FrameType | None) -> None:
        # This runs in the loop's thread and in its task's context, so the line carries the ids of the task's request.
        nonlocal work
        give_native_time()
        last, work = work, asyncio.current_task(loop)
        if work is not last:
            on_turn()
        elif (held := time.thread_time() - turned_at) >= seconds:
            _end(held, frame)
        loop.call_soon_threadsafe(on_turn)

    # The signal's default action ends the process.
    faulthandler.register(signal.SIGVTALRM, file=_STDERR, chain=True)
    signal.signal(signal.SIGPROF, on_look)
    # Libraries in C need not expect that this signal interrupts their calls.
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, seconds / _LOOKS, seconds / _LOOKS)
    give_native_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        # Do not restore the default, which ends the process: a last signal may still be on its way to a thread.
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        faulthandler.unregister(signal.SIGVTALRM)


def _end(held: float, frame: FrameType | None) -> None:
    places = [f"{one.f_code.co_filename}:{line}" for one, line in traceback.walk_stack(frame)]
    log.error(
        "loop.held",
        reason="one piece of work holds the event loop, so this process ends; let a supervisor start it again",
        seconds=round(held, 1),
        at=places[:_SHOWN_FRAMES],
    )
    os._exit(1)
