"""Broker's client -> our log: forwards the lines of its C++ threads, in our format and without secrets.

The client never gets a Python logger: its threads would need the interpreter's lock while they hold locks of their own
that a Python thread may wait for (apache/pulsar-client-python#116). It writes to a file in memory, which never blocks
it as a full pipe would, and one of our threads reads that file. The client keeps its first logger for the whole
process, so there is one file for the life of the process.
"""

import atexit
import contextlib
import os
import re
import tempfile
import threading
import time
from pathlib import Path

import structlog

log = structlog.get_logger()

READ_SECONDS = 0.5
"""Interval of reading the file."""
MAX_LINES = 10
"""Lines forwarded per read; the rest is counted. Without a broker every topic logs its own failure."""
MAX_LINE_CHARACTERS = 1000
MAX_READ_BYTES = 64 * 1024
"""Bytes per read; any more are skipped."""
MAX_FILE_BYTES = 1024 * 1024
"""Size from which the file is truncated after a read."""

_LINE = re.compile(r"[\d-]+ [\d:.]+ (?P<level>[A-Z]+) +\[[^\]]*\] (?P<where>[\w.]+:\d+) \| (?P<text>.*)")
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}


class ClientLog:
    """The client's log file and our position in it. Any thread may use it.

    Attributes:
        path: where the client opens it, to append.
    """

    def __init__(self) -> None:
        self._file, self.path = _open_file()
        self._at = 0
        self._rest = b""
        self._level = "error"
        self._reading = threading.Lock()

    def read(self) -> None:
        """Forward the new lines."""
        with self._reading:
            *lines, self._rest = (self._rest + self._fresh()).split(b"\n")
            self._rest = self._rest[-MAX_READ_BYTES:]
            for line in lines[:MAX_LINES]:
                self._pass_on(line.decode("utf-8", "replace"))
            if len(lines) > MAX_LINES:
                log.warning("bus.client_lines_dropped", lines=len(lines) - MAX_LINES)

    def _fresh(self) -> bytes:
        size = os.fstat(self._file).st_size
        fresh = os.pread(self._file, MAX_READ_BYTES, self._at) if size > self._at else b""
        if size - self._at > MAX_READ_BYTES:
            fresh = fresh[: fresh.rfind(b"\n") + 1]
            log.warning("bus.client_lines_dropped", size=size - self._at - len(fresh))
        self._at = size
        if size > MAX_FILE_BYTES:
            os.ftruncate(self._file, 0)
            self._at = 0
        return fresh

    def _pass_on(self, line: str) -> None:
        """Forward one line; a line without the client's prefix continues the one before it, with its level."""
        found, where, text = _LINE.fullmatch(line), None, line
        if found is not None:
            self._level = _LEVELS.get(found["level"], "error")
            where, text = found["where"], found["text"]
        if text.strip():
            getattr(log, self._level)("bus.client", where=where, text=text[:MAX_LINE_CHARACTERS])


_starting = threading.Lock()
_started: ClientLog | None = None


def client_log() -> ClientLog:
    """This process's file. It is read from the first call on, and a last time when the process ends."""
    global _started  # noqa: PLW0603 - the client has one for the process as well
    with _starting:
        if _started is None:
            _started = ClientLog()
            threading.Thread(target=_read_for_ever, args=(_started,), name="bus-client-log", daemon=True).start()
            atexit.register(_read_quietly, _started)
        return _started


def _read_for_ever(file: ClientLog) -> None:
    while True:
        time.sleep(READ_SECONDS)
        _read_quietly(file)


def _read_quietly(file: ClientLog) -> None:
    # If the log itself cannot be written, there is nowhere to report it.
    with contextlib.suppress(OSError, ValueError):
        file.read()


def _open_file() -> tuple[int, str]:
    """A file for this process alone, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("bus-client-log")
        path = f"/proc/self/fd/{file}"
        if Path(path).exists():
            return file, path
        os.close(file)
    file, path = tempfile.mkstemp(prefix="bus-client-", suffix=".log")
    atexit.register(Path(path).unlink, missing_ok=True)
    return file, path
