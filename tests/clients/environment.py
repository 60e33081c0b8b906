"""Package index -> an environment of its own for a client library, which may conflict with ours and with others."""

import fcntl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.missing import skip_or_fail
from tests.uv_command import ROOT, uv_command

FOLDER = ROOT / ".cache" / "clients"
INSTALL_SECONDS = 600.0


def python_of(name: str, packages: Sequence[str]) -> Path:
    """The Python of the environment `name`, which has these pinned packages; installed at the first use.

    Safe for several processes at once. Where it cannot be installed, the test is skipped or fails.
    """
    home = FOLDER / name
    done = home / "installed"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            python = str(home / "bin" / "python")
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(home))
            _uv("pip", "install", "--quiet", "--python", python, *packages)
            done.touch()
    return home / "bin" / "python"


def _uv(*arguments: str) -> None:
    try:
        answer = subprocess.run([*uv_command(), *arguments], capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        skip_or_fail(f"client libraries come through uv: {error}")
    if answer.returncode != 0:
        skip_or_fail(f"uv could not install a client library: {answer.stderr.decode(errors='replace')[-1000:]}")
