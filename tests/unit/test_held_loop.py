"""Work that holds the event loop: the process ends itself, and says where the work was and for which request."""

import json
import signal
import subprocess
import sys

import pytest

SECONDS = 0.2
PROGRAM = f"""
import asyncio, sys, time
from tg_base.server import held_loop
from tg_base.telemetry import configure_log, trace

held_loop.HELD_SECONDS = {SECONDS}
configure_log("json", "error")


async def work():
    trace.enter(trace.Span("the-request", "the-stream", None, "00-0-0-00"))
    await asyncio.sleep(0)
    WORK


async def work_within():
    with held_loop.end_if_held():
        await asyncio.create_task(work())


asyncio.run(work_within())
print("done")
"""


def run(work: str) -> "subprocess.CompletedProcess[str]":
    """A process that does this work on its loop."""
    program = PROGRAM.replace("WORK", work)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("while True: len('spinning')", id="in Python"),
        pytest.param("import re; re.match('(a+)+$', 'a' * 60 + 'b')", id="in a regular expression"),
    ],
)
def test_the_process_ends_and_says_what_it_was(work: str) -> None:
    ended = run(work)
    assert (ended.returncode, ended.stdout) == (1, "")
    line = json.loads(ended.stderr)
    assert line["event"] == "loop.held"
    assert (line["request"], line["stream"]) == ("the-request", "the-stream")
    assert any(place.startswith("<string>:") for place in line["at"])


def test_a_call_that_keeps_the_interpreter_is_ended_too() -> None:
    ended = run("sum(range(10**15))")
    assert (ended.returncode, ended.stdout) == (-signal.SIGVTALRM, "")
    assert " in work\n" in ended.stderr


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(f"time.sleep({4 * SECONDS})", id="which waits, as in a debugger"),
        pytest.param(
            f"end = time.thread_time() + {4 * SECONDS}\n    while time.thread_time() < end: await asyncio.sleep(0)",
            id="in turns",
        ),
    ],
)
def test_work_that_needs_no_cpu_or_gives_the_loop_its_turns_goes_on(work: str) -> None:
    ended = run(work)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
