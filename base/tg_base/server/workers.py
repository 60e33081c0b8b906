"""Parent -> processes that serve alike on one port: started, replaced when they die, restarted one by one, ended.

This process listens, and never accepts: its workers inherit the sockets. What waits to be accepted belongs to the
sockets, so it is not lost with a worker.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog

from tg_base.runtime import explain_no_listening, open_listening_sockets, report, running, start_task
from tg_base.server.worker_server import Work, WorkerServer
from tg_schema import TgError
from tg_schema.errors import Unavailable

log = structlog.get_logger()

PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Pauses before an ended worker is replaced; each successor that is short-lived too gets the next pause."""
STEADY_SECONDS: Final = 10.0
"""A worker that has served for so long was sound: if it ends, the pauses start anew."""
LATE_SECONDS: Final = 15.0
"""Seconds that a worker gets to end after its drain."""


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that workers have in common.

    Attributes:
        work: the order for each worker; number and sockets are filled in.
        count: the number of workers.
        host: the address to listen on.
        port: their port; 0 = any free one.
        drain: seconds that running requests get to finish when a worker ends.
        metrics_host: where their pages of metrics listen.
        metrics_port: the port of the first worker's page; those of the others follow it. 0 = any free ports, None = no
            pages.
    """

    work: Work
    count: int
    host: str
    port: int
    drain: float
    metrics_host: str
    metrics_port: int | None = None


class Workers:
    """Several servers on one port.

    Args:
        settings: the settings that all workers share.
        pauses: seconds before each successor of a worker that ends by itself. The last pause is repeated as long as
            another worker serves; otherwise all end after it.
    """

    def __init__(self, settings: WorkerSettings, pauses: Sequence[float] = PAUSES_SECONDS) -> None:
        self._settings = settings
        self._pauses = pauses
        self._count = settings.count
        self._works: list[Work] = []
        self._current: list[WorkerServer] = []
        self._alive: set[WorkerServer] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._listeners: tuple[socket.socket, ...] = ()
        self._keepers: dict[int, asyncio.Task[None]] = {}
        self._replacing = [asyncio.Lock() for _ in range(self._count)]
        self._restart = asyncio.Event()
        self._failed: TgError | None = None
        self._owner: asyncio.Task[None] | None = None

    def restart(self) -> None:
        """Replace the workers one after the other: each ends when its successor serves."""
        self._restart.set()

    def kill(self) -> None:
        """End them all at once, without a word to their clients."""
        for worker in self._alive:
            worker.kill_now()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve until the block is left, then drain all. Yields the first worker's ready line.

        Raises:
            Unavailable: a worker cannot serve, when it is started or again and again later.
        """
        owner = self._owner = asyncio.current_task()
        if self._count > (cores := _count_cores()):
            log.warning("workers.more_than_cores", workers=self._count, cores=cores)
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            stack.push_async_callback(self._end)
            # Start the first alone: an error is mostly the same for all, and is then reported once.
            first = await self._start(0)
            others = map(self._start, range(1, self._count))
            self._current = [first]
            for started in await asyncio.gather(*others, return_exceptions=True):
                if isinstance(started, BaseException):
                    raise started
                self._current.append(started)
            stack.push_async_callback(self._stop_keeping)
            for number in range(self._count):
                self._start_keeping(number)
            await stack.enter_async_context(running(self._follow_restarts()))
            log.info("workers.serving", workers=self._count, pids=[worker.pid for worker in self._current])
            try:
                yield first.line
            except asyncio.CancelledError:
                if self._failed is None or owner is None:
                    raise
                owner.uncancel()
                raise self._failed from None

    async def _start(self, number: int) -> WorkerServer:
        worker = await WorkerServer.start(self._works[number])
        self._alive.add(worker)
        return worker

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Open the sockets. This process keeps them, so that no waiting connection is lost with a worker."""
        host, port = self._settings.host, self._settings.port
        self._listeners = await _open_sockets("nothing can listen", host, port, "give another --port")
        for listener in self._listeners:
            stack.enter_context(listener)
        descriptors = tuple(listener.fileno() for listener in self._listeners)
        for number in range(self._count):
            metrics = tuple(stack.enter_context(each).fileno() for each in await self._open_metrics(number))
            work = replace(self._settings.work, number=number, sockets=descriptors, metrics_sockets=metrics)
            self._works.append(work)

    async def _open_metrics(self, number: int) -> tuple[socket.socket, ...]:
        """Open the sockets of a worker's metrics page. Each worker has a port, since each counts for itself."""
        if (first := self._settings.metrics_port) is None:
            return ()
        host, port = self._settings.metrics_host, first + number if first else 0
        another = f"give a --metrics-port that is followed by {self._count - 1} free ones"
        return await _open_sockets(f"metrics of worker {number} cannot be shown", host, port, another)

    def _start_keeping(self, number: int) -> None:
        keeper = self._keepers[number] = asyncio.create_task(self._keep(number))
        keeper.add_done_callback(report)

    async def _stop_keeping(self) -> None:
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.wait(self._keepers.values())

    async def _keep(self, number: int) -> None:
        """Replace a worker whenever it leaves or has ended by itself."""
        time, failures = asyncio.get_running_loop().time, 0
        while True:
            worker, since = self._current[number], time()
            leaves = await worker.left()
            async with self._replacing[number]:
                await self._note_left(number, worker, leaves=leaves)
                failures = 0 if time() - since > STEADY_SECONDS else failures
                try:
                    failures += await self._start_again(number, failures)
                except TgError as error:
                    self._failed = error
                    if self._owner is not None:
                        self._owner.cancel()
                    return
            log.info("worker.replaced", worker=number, pid=self._current[number].pid)

    async def _note_left(self, number: int, worker: WorkerServer, *, leaves: bool) -> None:
        """Log that a worker was told to end by somebody else, or has died."""
        if leaves:
            log.warning("worker.leaving", worker=number, pid=worker.pid)
            start_task(self._leaving, self._wait_for_end(worker))
            return
        status = await worker.ended()
        self._alive.discard(worker)
        log.warning("worker.ended", worker=number, pid=worker.pid, status=status)

    async def _start_again(self, number: int, failures: int) -> int:
        """Start a worker's successor, with retries; returns the number of attempts.

        Raises:
            TgError: there were too many attempts, `failures` included, and no other worker serves.
        """
        error: TgError = Unavailable(f"worker {number} ends again and again; its log says why")
        for count in itertools.count(1):
            # An error in the file, or a crash that each successor repeats, must not end the workers that serve.
            if failures + count > len(self._pauses) and not self._serves_beside(number):
                break
            await asyncio.sleep(self._pauses[min(failures + count, len(self._pauses)) - 1])
            try:
                self._current[number] = await self._start(number)
            except TgError as failure:
                log.warning("worker.not_started", worker=number, reason=failure.message)
                error = failure
            else:
                return count
        raise error

    def _serves_beside(self, number: int) -> bool:
        return any(worker in self._alive for other, worker in enumerate(self._current) if other != number)

    async def _follow_restarts(self) -> None:
        while True:
            await self._restart.wait()
            self._restart.clear()
            for number in range(self._count):
                if not await self._replace(number):
                    break

    async def _replace(self, number: int) -> bool:
        """Start a successor, then let the worker end; False if the successor cannot serve, and the worker continues."""
        async with self._replacing[number]:
            old = self._current[number]
            try:
                self._current[number] = await self._start(number)
            except TgError as error:
                log.error("worker.not_restarted", worker=number, reason=error.message)
                return False
            # The successor may end while the old worker still finishes what runs.
            self._keepers[number].cancel()
            self._start_keeping(number)
        old.hand_over()
        await self._wait_for_end(old)
        log.info("worker.restarted", worker=number, pid=self._current[number].pid)
        return True

    async def _wait_for_end(self, worker: WorkerServer) -> None:
        try:
            await asyncio.wait_for(worker.ended(), self._settings.drain + LATE_SECONDS)
        except TimeoutError:
            log.warning("worker.late", pid=worker.pid)
            await worker.kill()
        self._alive.discard(worker)

    async def _end(self) -> None:
        # If somebody else told all workers to end, no client must wait for them to accept.
        for listener in self._listeners:
            listener.close()
        for worker in self._alive:
            worker.drain()
        await asyncio.gather(*map(self._wait_for_end, tuple(self._alive)), *self._leaving)


async def _open_sockets(fault: str, host: str, port: int, advice: str) -> tuple[socket.socket, ...]:
    """Listen; `fault` and `advice` are for the error.

    Raises:
        Unavailable: the address is in use, or does not exist here.
    """
    try:
        return await asyncio.to_thread(open_listening_sockets, host, port)
    except (OSError, ValueError) as error:
        reason = explain_no_listening(error, advice)
    except OverflowError:
        reason = f"there is no such port; {advice}"
    raise Unavailable(f"{fault} on port {port} of {host}: {reason}")


def _count_cores() -> int:
    """The cores that this process may use, if the system says so; otherwise all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
