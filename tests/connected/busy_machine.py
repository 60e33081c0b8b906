"""Processes that eat the CPU beside a test: a machine that is starved, for a bounded time."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

EAT = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


@asynccontextmanager
async def busy_machine(processes: int, seconds: float) -> AsyncIterator[None]:
    """They end with the block, and in any case after so many seconds."""
    async with AsyncExitStack() as stack:
        for _ in range(processes):
            eater = await asyncio.create_subprocess_exec(sys.executable, "-c", EAT, str(seconds), stdin=DEVNULL)

            async def end(eater: asyncio.subprocess.Process = eater) -> None:
                if eater.returncode is None:
                    eater.kill()
                await eater.wait()

            stack.push_async_callback(end)
        yield
