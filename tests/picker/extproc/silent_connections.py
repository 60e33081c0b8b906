"""Connections to a server on which nothing is ever said, held by a process that has files of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

_HOLD = """
import socket, sys
host, port, count = sys.argv[1:]
held = [socket.create_connection((host, int(port))) for _ in range(int(count))]
print("held", flush=True)
for each in held:
    while each.recv(4096):
        pass
print("ended", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def silent_connections(address: str, count: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Hold them. Yields what waits until the server has closed all."""
    host, _, port = address.rpartition(":")
    command = (sys.executable, "-c", _HOLD, host, port, str(count))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    said = process.stdout
    assert said is not None
    try:
        assert await said.readline() == b"held\n"

        async def ended() -> None:
            assert await said.readline() == b"ended\n"

        yield ended
    finally:
        process.kill()
        await process.wait()
