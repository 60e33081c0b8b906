"""The last landed version, from its own commit: what runs beside the new one during a rolling upgrade."""

import subprocess
import sys
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import pytest

OLD_COMMIT = "2a0a97e782152deedc60d8df3a06f30815724e1c"
"""The version that installations have now. Move it when another one has landed, so that two neighbours are tested."""
DISTRIBUTIONS = ("schema", "base", "flow", "bedrock", "vertexai", "gateway", "cli", "serve")
_ROOT = Path(__file__).parents[2]


def old_program(folder: Path) -> tuple[str | Path, ...]:
    """The command line of that version's `tg-serve`, unpacked into `folder`; its libraries are this environment's.

    A clone without its history cannot have it: the test is skipped, and says so.
    """
    command = ["git", "-C", str(_ROOT), "archive", OLD_COMMIT, *DISTRIBUTIONS]
    packed = subprocess.run(command, check=False, capture_output=True)
    if packed.returncode:
        pytest.skip(f"this is no clone with the history of {OLD_COMMIT}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    # Before the paths of the editable installation, which come from files in site-packages.
    path = ":".join(str(folder / name) for name in DISTRIBUTIONS)
    # Its own entry point: the script in this environment calls that of the new version.
    scripts = tomllib.loads((folder / "serve" / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, _, function = scripts["tg-serve"].partition(":")
    return ("env", f"PYTHONPATH={path}", sys.executable, "-c", f"import sys, {module}; sys.exit({module}.{function}())")
