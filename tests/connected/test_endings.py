"""However a process ends that has the bus open, the broker's client neither aborts it nor keeps it."""

import asyncio
import os
import sys

import pytest

from tests.connected.ending_process import WAYS
from tests.pulsar_server import PulsarServer

pytestmark = pytest.mark.connected

TIMES = int(os.environ.get("TOKENGRID_ENDINGS", "3"))
SIDE_BY_SIDE = 2
LONGEST = 30.0


async def ended(way: str, url: str, turn: asyncio.Semaphore) -> tuple[int | None, str]:
    """The exit status of one process, and its last words."""
    async with turn:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.connected.ending_process", way, url, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, said = await asyncio.wait_for(process.communicate(), LONGEST)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return process.returncode, said.decode(errors="replace")[-2000:]


@pytest.mark.timeout(60 + 10 * TIMES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_process_ends_as_it_means_to(pulsar: PulsarServer, way: str) -> None:
    turn = asyncio.Semaphore(SIDE_BY_SIDE)
    endings = await asyncio.gather(*(ended(way, pulsar.service_url, turn) for _ in range(TIMES)))
    assert [status for status, _ in endings] == [WAYS[way]] * TIMES, [said for _, said in endings]
