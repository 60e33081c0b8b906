"""A role of a benchmark in its own process: told what to do line by line, it answers with one line of JSON."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TICK = os.sysconf("SC_CLK_TCK")


class Child:
    """`python -m module role ...`, from its start to its end."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(BrokenPipeError), self._process:
            self._process.kill()

    def tell(self, line: str) -> None:
        """Give the child its next line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The child's next line, decoded."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended early: {self._module}")
        return json.loads(line)


def say(value: object) -> None:
    """In the child: give the parent one line."""
    print(json.dumps(value), flush=True)


def listen() -> str:
    """In the child: the parent's next line."""
    return sys.stdin.readline().strip()


def own_cpu() -> float:
    """Seconds of CPU that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_of(pid: int | None) -> float | None:
    """Seconds of CPU that another process has used; None where there is no such process to look at."""
    if pid is None:
        return None
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def spent(before: float | None, after: float | None) -> float | None:
    """Seconds of CPU between two looks."""
    return None if before is None or after is None else round(after - before, 3)
