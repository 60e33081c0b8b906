"""Wheels -> a fresh environment outside the tree, with programs that see nothing else of this checkout."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.uv_command import ROOT, uv_command

INSTALL_TIMEOUT_SECONDS = 100.0
RUN_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


def build_wheels(folder: Path) -> dict[str, Path]:
    """Build the wheels of all parts, as `make wheels` does: distribution -> file."""
    run_checked(["make", "-s", "-C", str(ROOT), "wheels", f"DIST={folder}"])
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in folder.glob("*.whl")}


def without_compilers(folder: Path) -> str:
    """A PATH on which all compilers fail: what needs one cannot be installed."""
    for compiler in ("cc", "c++", "gcc", "g++", "clang"):
        (folder / compiler).write_text("#!/bin/sh\nexit 1\n")
        (folder / compiler).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


class Installation:
    """A virtual environment with some wheels in it and what these require, at the versions of requirements.lock.

    Nothing is compiled: the compilers of this machine fail there.
    """

    def __init__(self, home: Path, wheels: list[Path]) -> None:
        self.home = home
        self.bin = home / "environment" / "bin"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TOKENGRID_", "TRUSTGRAPH_", "PYTHON", "VIRTUAL_ENV"))
        }
        run_checked([*uv_command(), "venv", "-q", "--python", sys.executable, str(self.bin.parent)])
        self._path = without_compilers(home)
        self.install(*wheels)

    def install(self, *parts: Path) -> None:
        """Install wheels and folders beside what is there."""
        locked = ("--constraints", str(ROOT / "requirements.lock"))
        python = ("--python", str(self.bin / "python"))
        run_checked([*uv_command(), "pip", "install", "-q", *python, *locked, *map(str, parts)], PATH=self._path)

    def start(self, program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start an installed program, in a folder that has nothing of this checkout."""
        return subprocess.Popen(
            [self.bin / program, *arguments],
            cwd=self.home,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str, **environment: str) -> Ended:
        """Run an installed program to its end."""
        with self.start(program, *arguments, **environment) as process:
            try:
                out, err = process.communicate(timeout=RUN_TIMEOUT_SECONDS)
            finally:
                process.kill()
        return Ended(process.returncode, out, err)


def run_checked(command: list[str], **environment: str) -> None:
    """Run a tool of ours; what it said is the failure, where it fails."""
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
