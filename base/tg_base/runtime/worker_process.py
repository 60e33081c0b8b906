"""Caller -> worker process -> caller: runs one call at a time outside of this process's event loop.

Functions and values travel as pickles between processes of one program; nothing from outside is ever unpickled.
"""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, cast

import structlog

from tg_base.runtime.worker_main import SIZE_BYTES, Reply, write_pickle
from tg_schema import TgError
from tg_schema.errors import Unavailable

log = structlog.get_logger()

STEP_BYTES: Final = 256 * 1024
"""Bytes that are written to a worker before the event loop has its turn."""
_PROGRAM: Final = "from tg_base.runtime.worker_main import main; main()"
ENDED: Final = "a worker process has ended; ask again"

Answer = Callable[[Any], Awaitable[Any]]
"""Answers the questions that a function asks with `ask_caller`; raises TgError."""


class WorkerEnded(Unavailable):
    """The process of a call ended before the call did, for instance because it had no memory left."""


class WorkerProcess:
    """One process, made by `start`. It makes one call at a time, and ends with the process that started it.

    Attributes:
        busy: whether a call has begun and not ended. It stays true if a call was broken off; then close the process.
    """

    def __init__(self, process: Process) -> None:
        self.busy = False
        self._process = process
        self._input = cast("asyncio.StreamWriter", process.stdin)
        self._output = cast("asyncio.StreamReader", process.stdout)

    @classmethod
    async def start(cls) -> Self:
        """Start it; it finds the same modules as this process.

        Raises:
            Unavailable: the system cannot start another process.
        """
        # A session of its own: Ctrl-C on the terminal is for the process that started it.
        arguments = (sys.executable, "-P", "-c", _PROGRAM)
        # If memory runs out while a library in Rust collects a backtrace, the library deadlocks.
        env = {**os.environ, "RUST_BACKTRACE": "0"}
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments, stdin=PIPE, stdout=PIPE, env=env, start_new_session=True
            )
        except OSError as error:
            raise Unavailable(f"no worker process can be started: {type(error).__name__}") from None
        worker = cls(process)
        await worker._send(write_pickle(sys.path))
        return worker

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as is known."""
        return self._process.returncode is None and not self._output.at_eof()

    async def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Answer) -> Any:
        """Call a function in the process, which imports it by its name, and return its result.

        Raises:
            TgError: as the function raises.
            WorkerEnded: the process has ended.
            Unpicklable: see there.
        """
        message = write_pickle((function, arguments))
        self.busy = True
        await self._send(message)
        while (reply := await self._hear()).kind == "asked":
            try:
                result = await answer(reply.value)
            except TgError as error:
                result = error
            await self._send(write_pickle(result))
        result = await self._receive() if reply.kind == "returned" else bytearray()
        self.busy = False
        for method, fields in reply.lines:
            getattr(log, method)(**fields)
        if reply.kind == "raised":
            raise reply.value
        return pickle.loads(result)  # noqa: S301 - from a process that we started

    async def aclose(self) -> None:
        """End the process, whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _send(self, data: bytes) -> None:
        pipe = self._input
        try:
            pipe.write(len(data).to_bytes(SIZE_BYTES, "big"))
            for start in range(0, len(data), STEP_BYTES):
                pipe.write(data[start : start + STEP_BYTES])
                await pipe.drain()
        except (OSError, RuntimeError):
            raise WorkerEnded(ENDED) from None

    async def _hear(self) -> Reply:
        reply: Reply = pickle.loads(await self._receive())  # noqa: S301 - as above
        return reply

    async def _receive(self) -> bytearray:
        pipe = self._output
        try:
            size = int.from_bytes(await pipe.readexactly(SIZE_BYTES), "big")
            # One growing buffer: joining 20 MB of parts, or zeroing as much memory, would block for 10 ms.
            message = bytearray()
            while len(message) < size:
                part = await pipe.read(min(size - len(message), STEP_BYTES))
                if not part:
                    raise EOFError
                message += part
        except (OSError, EOFError):
            raise WorkerEnded(ENDED) from None
        return message
