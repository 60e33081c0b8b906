"""Package index -> cache -> the predecessor's unmodified command line tools, for tests that they must pass."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.uv_command import uv_command

VERSION = "2.11.1"
PACKAGES = (f"trustgraph-cli=={VERSION}", f"trustgraph-base=={VERSION}")
IMPORTED = ("aiohttp", "prometheus-client", "requests", "tabulate", "websockets")
"""What the tools that we run import of what the packages require; all of it would be ten times as much."""
INSTALL_TIMEOUT = 600.0


class ToolsMissing(Exception):
    """The tools can't be had here; the sentence says why."""


def tools() -> Path:
    """The folder with `tg-invoke-llm` and the others; installed first where the cache has none.

    Safe for several processes at once.

    Raises:
        ToolsMissing: there is no `uv`, or it could not get the packages.
    """
    cache = Path(os.environ.get("TOKENGRID_CACHE") or Path.home() / ".cache" / "tokengrid")
    home = cache / f"predecessor-{VERSION}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "predecessor.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not home.is_dir():
                _install(home)
    return home / "bin"


def _install(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        fresh = Path(folder) / "venv"
        _uv("venv", "--quiet", "--relocatable", "--python", sys.executable, str(fresh))
        python = str(fresh / "bin" / "python")
        _uv("pip", "install", "--quiet", "--python", python, "--no-deps", *PACKAGES)
        _uv("pip", "install", "--quiet", "--python", python, *IMPORTED)
        fresh.rename(home)


def _uv(*arguments: str) -> None:
    try:
        answer = subprocess.run([*uv_command(), *arguments], capture_output=True, timeout=INSTALL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolsMissing(f"the predecessor's tools come through uv: {error}") from error
    if answer.returncode != 0:
        raise ToolsMissing(f"uv could not install them: {answer.stderr.decode(errors='replace')[-1000:]}")
