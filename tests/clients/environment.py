"""Package index -> an environment of its own for a client library, which may conflict with ours and with others."""

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.clients import ENVIRONMENTS, LEFT_OUT, MANIFESTS, PYTHONS, Client, lock_of
from tests.missing import skip_or_fail
from tests.npm_package import npm_or_skip
from tests.uv_command import ROOT, uv_command

FOLDER = ROOT / ".cache" / "clients"
INSTALL_SECONDS = 600.0


def command_of(client: Client) -> list[str | Path]:
    """How to run the client's program, which is installed at the first use; URL, key and model follow."""
    program = Path(__file__).with_name(client.program)
    if client.environment in MANIFESTS:
        return ["node", _beside_its_modules(program, program.with_name(client.environment))]
    lock = lock_of(client.environment)
    # The lock has all that they need.
    packages, python = ("--no-deps", "-r", str(lock)), PYTHONS.get(client.environment, sys.executable)
    return [python_of(f"{client.environment}-{_digest(lock)}", packages, python), program]


def resolve_newest() -> None:
    """Resolve all versions anew: locks/ and the manifests of npm."""
    for name, packages in ENVIRONMENTS.items():
        with tempfile.NamedTemporaryFile("w") as left_out:
            left_out.write("\n".join(LEFT_OUT.get(name, ())))
            left_out.flush()
            _uv(
                *("pip", "compile", "--quiet", "--upgrade", "--no-header", "--no-annotate", "--universal"),
                *("--python-version", "3.11", "--excludes", left_out.name, "--output-file", str(lock_of(name)), "-"),
                given="\n".join(packages),
            )
    for manifest in map(Path(__file__).with_name, MANIFESTS):
        described = json.loads(manifest.read_text("utf-8"))
        described["dependencies"] = {name: _npm("view", name, "version") for name in described["dependencies"]}
        manifest.write_text(json.dumps(described, indent=2) + "\n", "utf-8")


def python_of(name: str, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The Python of the environment `name`, which has these pinned packages; installed at the first use.

    Safe for several processes at once. Where it cannot be installed, the test is skipped or fails.
    """
    home = FOLDER / name
    done = home / "installed"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _uv("venv", "--quiet", "--clear", "--python", python, str(home))
            _uv("pip", "install", "--quiet", "--python", str(home / "bin" / "python"), *packages)
            done.touch()
    return home / "bin" / "python"


def _beside_its_modules(program: Path, manifest: Path) -> Path:
    """The program in the folder of what a manifest names: Node looks for modules beside the program."""
    home = FOLDER / f"npm-{_digest(manifest)}"
    home.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.copy(manifest, home / "package.json")
        for file in program.parent.glob("*.mjs"):
            shutil.copy(file, home)
        if not (home / "installed").exists():
            _npm("install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(home))
            (home / "installed").touch()
    return home / program.name


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _npm(*arguments: str) -> str:
    _, npm = npm_or_skip("clients in JavaScript")
    done = subprocess.run([npm, *arguments], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        pytest.skip(f"npm did not install clients in JavaScript: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.strip()


def _uv(*arguments: str, given: str = "") -> None:
    try:
        answer = subprocess.run(
            [*uv_command(), *arguments],
            input=given.encode(),
            capture_output=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        skip_or_fail(f"client libraries come through uv: {error}")
    if answer.returncode != 0:
        skip_or_fail(f"uv could not install a client library: {answer.stderr.decode(errors='replace')[-1000:]}")
