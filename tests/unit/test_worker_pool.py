"""Functions called in other processes: what comes back, and what is left when one of both sides ends early."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes.worker_functions import ask_twice, die, fail, identify, make_function, nest, print_and_log, refuse
from tg_base.runtime import MAX_QUICK_BYTES, MAX_READ_HERE_OBJECTS, Unpicklable, WorkerPool, is_costly
from tg_base.runtime.reading_cost import MAX_READ_HERE_BYTES, MAX_READ_HERE_NAMES
from tg_base.runtime.worker_process import WorkerProcess
from tg_gateway.dialects import InvalidParameter
from tg_schema.errors import BadRequest, Internal, NotFound, Unavailable


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    made = WorkerPool()
    yield made
    await made.aclose()


async def test_one_process_makes_one_call_after_the_other(pool: WorkerPool) -> None:
    with capture_logs() as lines:
        processes = await asyncio.gather(*(pool.call(identify, number) for number in range(3)))
        assert len({*processes, os.getpid()}) == 2
        assert await pool.call(bytes.upper, b"large" * 1_000_000) == b"LARGE" * 1_000_000
        assert await pool.call(print_and_log, "a line\n") == 7
        with pytest.raises(InvalidParameter, match="it is wrong") as refused:
            await pool.call(refuse, "messages[0]")
        assert (refused.value.param, refused.value.code) == ("messages[0]", "invalid_value")
        with pytest.raises(Internal):
            await pool.call(fail)
        for function, argument in ((len, make_function()), (make_function, None)):
            with pytest.raises(Unpicklable):
                await pool.call(function, *([argument] if argument else []))
        assert await pool.call(identify) == processes[0]
    said, defect = lines
    assert said == {"event": "worker.said", "text": "a line\n", "log_level": "info"}
    assert "FileNotFoundError" in defect["traceback"]


async def test_a_function_asks_its_caller(pool: WorkerPool) -> None:
    async def answer(question: Any) -> Any:
        if question == "missing":
            raise NotFound("there is none")
        return question * 2

    assert (await pool.call(ask_twice, "a", "b", answer=answer))[:2] == ("aa", "bb")
    with pytest.raises(NotFound, match="there is none"):
        await pool.call(ask_twice, "a", "missing", answer=answer)
    with pytest.raises(Internal):
        await pool.call(ask_twice, "a", "b")


async def test_a_process_that_dies_is_replaced(pool: WorkerPool) -> None:
    first = await pool.call(identify)
    with pytest.raises(Unavailable):
        await pool.call(die)
    assert await pool.call(identify) not in {first, os.getpid()}


async def test_a_process_does_not_end_before_the_one_that_started_it(pool: WorkerPool) -> None:
    """A supervisor tells all processes of a service to end, and what runs in the first one goes on."""
    process = await pool.call(identify)
    os.kill(process, signal.SIGTERM)
    assert await pool.call(identify) == process


async def test_a_process_that_ends_between_two_calls_fails_none(pool: WorkerPool) -> None:
    process = await pool.call(identify)
    os.kill(process, signal.SIGKILL)
    async with asyncio.timeout(20):
        await pool._free[0]._process.wait()
    assert await pool.call(identify) not in {process, os.getpid()}


async def test_what_is_nested_too_deep_is_refused(pool: WorkerPool) -> None:
    for function, argument in ((nest, 100_000), (identify, nest(100_000))):
        with pytest.raises(BadRequest, match="nested too deep"):
            await pool.call(function, argument)


async def test_the_end_ends_what_runs_and_starts_no_process(pool: WorkerPool) -> None:
    asked = asyncio.Event()

    async def answer(question: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    process = await pool.call(identify)
    running = asyncio.create_task(pool.call(ask_twice, "a", "b", answer=answer))
    await asked.wait()
    waiting = asyncio.create_task(pool.call(identify))
    await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await pool.call(identify)
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_caller_that_is_cancelled_leaves_at_once_and_its_call_ends(pool: WorkerPool) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(question: Any) -> Any:
        asked.set()
        await go_on.wait()
        return question

    process = await pool.call(identify)
    left = asyncio.create_task(pool.call(ask_twice, "a", "b", answer=answer))
    await asked.wait()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    following = asyncio.create_task(pool.call(identify))
    go_on.set()
    assert await following == process


async def test_a_process_ends_with_the_one_that_started_it() -> None:
    worker = await WorkerProcess.start()
    # As the system does it for a process that is killed.
    worker._input.close()
    assert await worker._process.wait() == 0
    with pytest.raises(Unavailable):
        await worker.call(identify, (), lambda question: asyncio.sleep(0))
    assert worker.busy
    await worker.aclose()


ORPHANED = """
import asyncio, os, sys
from pathlib import Path
from tests.fakes.worker_functions import outlive
from tests.until import until
from tg_base.runtime.worker_process import WorkerProcess

async def main():
    worker, file = await WorkerProcess.start(), Path(sys.argv[1])
    calling = asyncio.create_task(worker.call(outlive, (file,), None))
    await until(file.exists)
    os._exit(0)

asyncio.run(main())
"""


def test_a_process_says_nothing_if_its_result_comes_after_the_end_of_who_asked(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHANED, str(tmp_path / "begun")]
    # Both write to it: it ends when both have ended.
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    assert not done.stderr


NAME_ENDS = (b'"', b'" ', b'"\n', b'"\t', b'"\r', b'\\\\"')
"""What may stand before the colon of a name."""


@pytest.mark.parametrize(
    ("body", "costly"),
    [
        (b'{"a":1}' * MAX_READ_HERE_OBJECTS, False),
        (b'{"a":1}' + b" " * MAX_READ_HERE_BYTES, True),
        (b'{"a":"%b"}' % (b"{ \\n{x}" * 900 + b"x" * MAX_QUICK_BYTES), False),
        *(
            (begin.join([b"x" * 100] * (MAX_READ_HERE_OBJECTS + 2)), True)
            for begin in (b'{"', b"{}", b"{ ", b"{\n", b"{\t", b"{\r")
        ),
        (b'{"a":"%b"}' % (b'\\"name\\":1,' * 2 * MAX_READ_HERE_NAMES), False),
        (b'{"name":%b}' % (b"[1,2]," * 2 * MAX_READ_HERE_NAMES), False),
        *((b"{%b}" % (b'"name%b:1,' % end * (MAX_READ_HERE_NAMES + 1)), True) for end in NAME_ENDS),
    ],
    ids=range(17),
)
def test_what_is_read_in_another_process(body: bytes, *, costly: bool) -> None:
    assert is_costly(body) is costly
