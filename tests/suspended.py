"""A process that stands still while its sockets stay open, as under a debugger or in a frozen container."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STOP_SECONDS = 30.0


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """Inside the block none of its threads runs: `kill` returns before the last one has stopped."""
    os.kill(pid, signal.SIGSTOP)
    try:
        latest = time.monotonic() + STOP_SECONDS
        while not _is_stopped(pid):
            assert time.monotonic() < latest, f"process {pid} does not stop"
            time.sleep(0.001)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    return all(_state_of(thread) in {"T", "t", "Z", "X", ""} for thread in Path(f"/proc/{pid}/task").glob("*"))


def _state_of(thread: Path) -> str:
    """The letter of proc(5), after the name in parentheses; "" = the thread has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
