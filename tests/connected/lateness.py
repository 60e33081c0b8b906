"""How late the machine itself is: what a deadline leaves out, so that it says something of our processes alone.

Two delays are measured: by how much the test's own loop oversleeps, which also shows a machine that stands still; and
for how long the main threads of other processes were ready to run and had no core (Linux tells it; elsewhere only the
first is measured). Both are next to nothing on an idle machine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.connected.pipeline import Part
from tg_base.protocol import AwakeClock
from tg_base.runtime import running

LOOK_SECONDS = 0.05


@asynccontextmanager
async def lateness(*parts: Part) -> AsyncIterator[Callable[[], float]]:
    """Inside, tells the seconds by which this process and these parts were late since it was entered."""
    time, awake = asyncio.get_running_loop().time, AwakeClock()

    async def look() -> None:
        while True:
            await awake.sleep(LOOK_SECONDS)

    def told() -> float:
        return time() - awake() + sum(map(_without_a_core, parts)) - before

    before = 0.0
    async with running(look()):
        before = told()
        yield told


def _without_a_core(part: Part) -> float:
    """Seconds; `/proc/PID/schedstat` is: time on a core, time of waiting for one (both in ns), turns."""
    try:
        return int(Path(f"/proc/{part.process.pid}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
