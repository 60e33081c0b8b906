"""A shell's background job ignores Ctrl-C: tests do not hang there, commands keep to it, a server drains."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.flow.command import SCRIPTS, ended, started
from tests.flow.open_gateway import open_gateway

IN_THE_BACKGROUND = "trap '' INT; exec \"$@\""
"""How a shell without job control starts `command &`."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "inner", ["test_cli.py::test_an_interrupt_while_stdin_is_read", "test_embedded.py::test_an_interrupt"]
)
async def test_tests_that_interrupt_children_do_not_hang(inner: str) -> None:
    pytest_again = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"{ROOT}/tests/flow/{inner}")
    command = f"cd {ROOT}; {IN_THE_BACKGROUND}"
    async with started("bash", "-c", command, "bash", *pytest_again, PYTHONWARNINGS="") as process:
        done = await ended(process, within=90)
    assert done.code == 0, done.out


async def test_a_command_in_the_background_is_not_interrupted() -> None:
    async with open_gateway() as opened:
        opened.llm.step = asyncio.Semaphore(1)
        command = (str(SCRIPTS / "tg-invoke-llm"), "", "2", "-u", opened.gateway.url)
        async with started("bash", "-c", IN_THE_BACKGROUND, "bash", *command) as process:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readexactly(2), 30) == b"0 "
            process.send_signal(signal.SIGINT)
            opened.llm.step.release()
            done = await ended(process)
    assert (done.code, done.out) == (0, "1 \n")


async def test_a_server_in_the_background_drains() -> None:
    async with started("bash", "-c", IN_THE_BACKGROUND, "bash", str(SCRIPTS / "tg-serve"), "--port", "0") as process:
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), 60)).startswith(b"ready: ")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert done.code == 0
