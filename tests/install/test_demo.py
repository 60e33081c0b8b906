"""`make demo` from nothing: it sets up what the demo and `make serve` need, and no more, and answers."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.install.installation import without_compilers
from tests.uv_command import ROOT, uv_command

pytestmark = [pytest.mark.install, pytest.mark.model]
MEMBERS = {"schema", "base", "flow", "gateway", "llama", "doors", "cli", "serve"}
_OF_THE_CALLER = {"ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "VIRTUAL_ENV"}
"""Variables that a `make test ARGS=...` around this would hand on."""


@pytest.mark.timeout(300)
def test_the_demo_installs_what_it_needs(tmp_path: Path) -> None:
    """And compiles nothing: the compilers of this machine fail."""
    home = tmp_path / "environment"
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    inherited["PATH"] = without_compilers(tmp_path)
    demo = ["make", "-C", str(ROOT), f"VENV={home}", "demo"]
    done = subprocess.run(demo, env=inherited, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "messaging system" in done.stdout
    python = ("--python", str(home / "bin" / "python"))
    listed = subprocess.run(
        [*uv_command(), "pip", "list", *python, "--format", "json"], capture_output=True, check=True
    )
    names = {row["name"] for row in json.loads(listed.stdout)}
    assert {name for name in names if name.startswith("tokengrid-")} == {f"tokengrid-{member}" for member in MEMBERS}
    assert not names & {
        "pytest",
        "mypy",
        "ruff",
        "llama-cpp-python",
        "pulsar-client",
        "boto3",
        "google-genai",
        "openai",
        "anthropic",
    }
    subprocess.run([*uv_command(), "pip", "check", "-q", *python], capture_output=True, check=True)
    serve = ["make", "-n", "-C", str(ROOT), "--no-print-directory", f"VENV={home}", "serve"]
    planned = [
        subprocess.run([*serve, *options], env=inherited, capture_output=True, text=True, check=True).stdout
        for options in ((), ("ARGS=--only gateway",))
    ]
    assert planned[0] == f"{home}/bin/tg-serve \n", "it takes nothing but what the demo has"
    assert "requirements-server.lock" in planned[1]


@pytest.mark.timeout(100)
def test_a_machine_that_numpy_has_no_wheel_for_is_told_so(tmp_path: Path) -> None:
    """In place of the errors of a compiler that it may not even have."""
    home = tmp_path / "environment"
    other = (
        f"{shlex.join(uv_command())} pip install -q --python {home}/bin/python --python-platform riscv64-unknown-linux"
    )
    demo = ["make", "-C", str(ROOT), f"VENV={home}", f"INSTALL={other}", "demo"]
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    done = subprocess.run(demo, env=inherited, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode != 0
    assert re.search(r"numpy.* has no usable wheels", done.stderr), done.stderr
