"""A process that leaves while the engine works: no crash of native code, whatever the way out."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]

ASK = """
import asyncio
from tests.llama.demo_llm import ENDLESS
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp

async def main():
    service = await LlamaCpp.open("tinydemo", LlamaCppOptions(context=8192, slots=1))
    async for record in service.on_request(ENDLESS):
        print(len(record.response), flush=True)
        {then}

asyncio.run(main())
"""


def started(then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ASK.format(then=then)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("then", "code", "last"),
    [
        ("return", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise ValueError('left')", 1, "ValueError: left"),
        ("asyncio.create_task(asyncio.to_thread(print, 'bye')); return", 0, ""),
    ],
)
def test_leaving_in_mid_stream_without_closing_anything(then: str, code: int, last: str) -> None:
    with started(then) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert (errors.strip().splitlines() or [""])[-1] == last


def test_ctrl_c_in_mid_stream() -> None:
    with started("pass") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_terminating_in_mid_stream() -> None:
    with started("pass") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert errors == ""


def test_llama_cpp_writes_nothing_to_the_terminal() -> None:
    with started("return") as process:
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert output.strip().isdigit()
