"""What a file of tests leaves unclosed fails one of its own tests."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.conftest import no_garbage"
LEAVING = """
import socket

def test_leaves_a_socket() -> None:
    cycle = [socket.socket()]
    cycle.append(cycle)
"""
OTHER = """
def test_has_nothing_to_do_with_it() -> None:
    pass
"""


def test_who_leaves_a_socket_to_the_garbage_collector_fails(tmp_path: Path) -> None:
    for name, text in (("conftest", CONFTEST), ("test_leaving", LEAVING), ("test_other", OTHER)):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\npythonpath = {ROOT}\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("ERROR ", "FAILED "))]
    assert failed == ["ERROR test_leaving.py::test_leaves_a_socket"], done.stdout + done.stderr
