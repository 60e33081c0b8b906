"""The servers that the pages start, each command once: pages that start the same one share it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """A server that runs; `ready` is all that it has said on its standard output."""

    process: subprocess.Popen[bytes]
    port: int
    ready: str


class Servers:
    """Every server that was started so far. `close` ends them."""

    def __init__(self) -> None:
        self._running: dict[str, Server] = {}

    async def get(self, key: str, port: int, command: str, folder: Path, environment: Mapping[str, str]) -> Server:
        """The server with this key; it is started on `port` if there is none.

        Raises:
            AssertionError: it has ended in place of being ready; the message is what it said.
        """
        if key not in self._running:
            self._running[key] = await self._start(port, command, folder, environment)
        return self._running[key]

    def close(self) -> None:
        """End all, and wait for their end."""
        for server in self._running.values():
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.communicate()

    async def _start(self, port: int, command: str, folder: Path, environment: Mapping[str, str]) -> Server:
        errors = folder / f"{port}.log"
        process = _spawn(command, folder, environment, errors)
        assert process.stdout is not None
        ready = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), READY_SECONDS)
        assert ready, errors.read_text("utf-8")
        return Server(process, port, ready.decode())


def _spawn(command: str, folder: Path, environment: Mapping[str, str], errors: Path) -> subprocess.Popen[bytes]:
    with errors.open("wb") as log:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
