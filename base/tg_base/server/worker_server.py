"""Parent -> one worker process of several that serve alike: starts it, hears when it serves, and ends it."""

import asyncio
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from tg_schema.errors import Unavailable

START_SECONDS: Final = 60.0
"""Seconds in which a worker must serve."""
FAILED: Final = "failed: "
"""Prefix of the line that a worker writes if it cannot serve; the reason follows."""
LEAVING: Final = "leaving"
"""The line of a worker that accepts nothing more and finishes what runs."""
_NO_PROCESS: Final = "no further process can be started; raise the limits of processes, open files or memory"
_PROGRAM: Final = "from tg_base.server.worker_entry import main; main()"


@dataclass(frozen=True)
class Work:
    """A worker's order, sent as a pickle.

    Attributes:
        serve: called in the worker with this object and a function `tell`, with which it reports to the parent. It
            calls `tell` with one line once it serves, and with `LEAVING` once it begins to end. It returns when it has
            ended, and raises TgError if it cannot serve.
        order: an argument for `serve`: the services to run.
        number: which worker it is.
        sockets: descriptors of listening sockets, which it has inherited.
        metrics_sockets: descriptors of the sockets for its own page of metrics.
        lifeline: a descriptor that ends when the parent does.
    """

    serve: "Callable[[Work, Callable[[str], None]], None]"
    order: Any
    number: int = 0
    sockets: tuple[int, ...] = ()
    metrics_sockets: tuple[int, ...] = ()
    lifeline: int = 0


class WorkerServer:
    """One process, made by `start`.

    Attributes:
        pid: its id.
        line: the line that it wrote when it began to serve.
    """

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.line = ""
        self._process = process

    @classmethod
    async def start(cls, work: Work) -> Self:
        """Start a worker and return once it serves. It ends with this process, however that ends.

        Raises:
            Unavailable: it cannot serve; the message is its own, if it has said why.
        """
        # A session of its own: Ctrl-C on the terminal is for this process, which tells its workers.
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _PROGRAM),
                stdin=PIPE,
                stdout=PIPE,
                start_new_session=True,
                pass_fds=(*work.sockets, *work.metrics_sockets),
            )
        except OSError:
            raise Unavailable(_NO_PROCESS) from None
        worker = cls(process)
        async with AsyncExitStack() as failed:
            failed.push_async_callback(worker.kill)
            cast("asyncio.StreamWriter", process.stdin).write(pickle.dumps(sys.path) + pickle.dumps(work))
            worker.line = await _read_line(cast("asyncio.StreamReader", process.stdout))
            if not worker.line or worker.line.startswith(FAILED):
                raise Unavailable(worker.line.removeprefix(FAILED) or "a worker ended before it served; see its log")
            failed.pop_all()
        return worker

    def drain(self) -> None:
        """End it while all workers end: it refuses new requests and finishes the running ones."""
        self._signal(signal.SIGINT)

    def hand_over(self) -> None:
        """End it without refusing requests, because other workers accept in its place."""
        self._signal(signal.SIGTERM)

    async def left(self) -> bool:
        """Wait until it no longer serves; returns whether it still finishes running requests."""
        line = await cast("asyncio.StreamReader", self._process.stdout).readline()
        return line.decode() == f"{LEAVING}\n"

    async def ended(self) -> int:
        """Its exit status, once it has ended; below 0 = the signal that killed it."""
        return await self._process.wait()

    async def kill(self) -> None:
        """End it at once, and return when it has ended."""
        self.kill_now()
        await self._process.wait()

    def kill_now(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)


async def _read_line(stdout: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(START_SECONDS):
            return (await stdout.readline()).decode().rstrip("\n")
    except TimeoutError:
        raise Unavailable(f"a worker does not serve after {START_SECONDS:g} s; see its log") from None
