"""A test that hangs, whatever it waits for, ends at its limit; and so does the run."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.time_limit import TimeLimit

def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimit(config, grace=1.0, exiting=1.0))
"""
IN_C = """
import ctypes

def test_hangs() -> None:
    mutex = ctypes.create_string_buffer(256)
    lock = ctypes.PyDLL(None).pthread_mutex_lock  # keeps the interpreter's lock while it waits
    lock(mutex)
    lock(mutex)
"""
IN_A_JOIN = """
import threading

def test_hangs() -> None:
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()
"""
AT_EXIT = """
import threading

def test_leaves_a_thread() -> None:
    threading.Thread(target=threading.Event().wait).start()
"""
IN_A_LOOP = """
import asyncio
import contextlib

async def stubborn() -> None:
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.Event().wait()

async def test_hangs() -> None:
    await asyncio.create_task(stubborn())
"""
IN_ITS_TEARDOWN = """
import threading
import pytest

@pytest.fixture
def stubborn():
    yield
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass

def test_hangs(stubborn: None) -> None:
    raise ValueError("a failure, which disarms pytest's own watchdog")
"""


def run_alone(folder: Path, hanging: str) -> "subprocess.Popen[str]":
    """A run of pytest with this test alone."""
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST, "utf-8")
    (folder / "test_hanging.py").write_text(hanging, "utf-8")
    (folder / "pytest.ini").write_text(
        "[pytest]\ntimeout = 1\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_hanging_test_ends_with_its_stack(tmp_path: Path) -> None:
    """They wait side by side."""
    kinds = (IN_C, IN_A_JOIN, AT_EXIT, IN_A_LOOP, IN_ITS_TEARDOWN)
    with ExitStack() as stack:
        runs = [stack.enter_context(run_alone(tmp_path / str(number), kind)) for number, kind in enumerate(kinds)]
        for run in runs:
            # One that went on hanging would keep this test from its end.
            stack.callback(run.kill)
        for run in runs:
            said, _ = run.communicate(timeout=100)
            assert run.returncode == 1, said
            assert "Timeout" in said


def test_this_run_is_watched(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("time-limit")
