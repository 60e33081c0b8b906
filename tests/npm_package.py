"""npm registry -> a folder of its own below .cache: a package of others, pinned."""

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.uv_command import ROOT

INSTALL_SECONDS: Final = 600


def npm_or_skip(what: str) -> tuple[str, str]:
    """The programs of Node and npm, which `what` needs."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(f"there is no Node or npm, for {what}: `apt-get install npm` on Debian")
    return node, npm


def npm_package_or_skip(name: str, version: str) -> tuple[str, Path]:
    """Node's program, and the folder; installed at the first use. Safe for several processes at once."""
    package, folder = f"{name}@{version}", ROOT / ".cache" / name.rpartition("/")[2] / version
    node, npm = npm_or_skip(package)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            if done.returncode:
                pytest.skip(f"npm did not install {package}: {done.stderr.strip().splitlines()[-1:]}")
            (folder / "installed").touch()
    return node, folder
