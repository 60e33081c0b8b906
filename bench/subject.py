"""A process under measurement: started, watched from outside, stopped by its pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.child import cpu_of

PATIENCE = 240.0
"""Seconds until a process must be ready."""


class Subject:
    """One process; its errors go to a file, and where it is `quiet` its output too."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.name = name
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output if quiet else subprocess.PIPE,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_of(self.pid) or 0.0

    @property
    def resident(self) -> float:
        """MiB of memory."""
        return self._status("VmRSS") / 1024

    @property
    def threads(self) -> int:
        """How many it has now."""
        return self._status("Threads")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1])

    def first_line(self) -> str:
        """What it says first on its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()


def wait_ready(url: str, page: str = "/ready") -> None:
    """Return once a server answers at `page`, as a gateway does when it can answer."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(url + page, timeout=2)
            return
        time.sleep(0.1)
    raise RuntimeError(f"{url} is not ready; see the log of the process")


def tokengrid(*arguments: str) -> list[str]:
    """The command line of a Tokengrid process."""
    return [str(Path(sys.executable).parent / "tg-serve"), *arguments]
