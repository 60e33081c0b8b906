"""npm registry -> a folder of its own with jsdom: the DOM of a browser, in Node."""

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.uv_command import ROOT

PACKAGE: Final = "jsdom@26.1.0"
"""The last major version for Node 18."""
FOLDER: Final = ROOT / ".cache" / "jsdom" / PACKAGE.rpartition("@")[2]
INSTALL_SECONDS: Final = 300


def jsdom_or_skip() -> tuple[str, Path]:
    """Node's program, and the folder; installed at the first use. Safe for several processes at once."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(f"{PACKAGE} needs Node and npm: `apt-get install npm` on Debian")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "installed").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), PACKAGE]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            if done.returncode:
                pytest.skip(f"npm did not install {PACKAGE}: {done.stderr.strip().splitlines()[-1:]}")
            (FOLDER / "installed").touch()
    return node, FOLDER
