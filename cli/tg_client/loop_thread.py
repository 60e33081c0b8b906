"""Blocking caller -> the asynchronous client: an event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from tg_schema import TgError
from tg_schema.errors import BadRequest, Unavailable

T = TypeVar("T")

_CLOSED = "the client is closed: ask inside `with SyncTgClient(...) as client`"
_FORKED = "the client was opened before this process was forked: open a new client in each process"
_END_SECONDS = 1.0
"""Seconds that cancelled work gets to end."""


class LoopThread:
    """The loop starts with the first work; closing it stops all its tasks, and it does not start again."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._process = 0
        self._changing = threading.RLock()

    def close(self) -> None:
        """Stop the loop and all its tasks."""
        # A forked process has the loop but not its thread, and the loop's sockets belong to the parent.
        if self._process != os.getpid():
            return
        with self._changing:
            loop, self._loop, self._closed = self._loop, None, True
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def check_open(self) -> None:
        """Check that the loop can be used by this process, and start it if needed.

        Raises:
            BadRequest: the loop is closed, or belongs to another process.
        """
        with self._changing:
            if self._loop is None and not self._closed:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(loop,), name="tg-client", daemon=True)
                self._thread.start()
                self._loop, self._process = loop, os.getpid()
        if self._loop is None:
            raise BadRequest(_CLOSED)
        if self._process != os.getpid():
            raise BadRequest(_FORKED)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for the result; Ctrl-C in the caller cancels the work and waits for its end.

        Raises:
            BadRequest: as for `check_open`; `work` did not begin.
            Unavailable: the loop was stopped before there was a result.
        """
        begun: list[asyncio.Task[Any]] = []
        future: Future[T] | None = None
        try:
            future = self._submit(_note_task(work, begun), work)
            return future.result()
        except CancelledError:
            raise Unavailable("the client was closed before the answer arrived") from None
        finally:
            # Either the work is done, or the caller was interrupted, perhaps while it handed the work over.
            if future is None or future.cancel():
                self._await_end(work, begun)

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that closes something. If the loop has already closed everything, do nothing."""
        with suppress(TgError):
            if self._loop is not None and threading.current_thread() is self._thread:
                # The garbage collector may call this in the loop's own thread, which cannot wait for itself.
                self._submit(work, work)
            else:
                self.run(work)

    def _submit(self, work: Coroutine[Any, Any, T], owned: Coroutine[Any, Any, Any]) -> Future[T]:
        try:
            # Hold the lock, so that no other thread closes the loop meanwhile.
            with self._changing:
                self.check_open()
                return asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]
        except BadRequest:
            work.close()
            owned.close()
            raise

    def _await_end(self, work: Coroutine[Any, Any, Any], begun: list[asyncio.Task[Any]]) -> None:
        """Cancel work and wait for it: a stream cannot be closed while it is still being read."""

        async def wait() -> None:
            for task in begun:
                # Cancel once: a second cancel would interrupt the closing that the first one started.
                if not task.cancelling():
                    task.cancel()
            if begun:
                await asyncio.wait(begun, timeout=_END_SECONDS)
            else:
                work.close()

        waiting = wait()
        with suppress(TgError, CancelledError):
            self._submit(waiting, waiting).result()


async def _note_task(work: Coroutine[Any, Any, T], begun: list[asyncio.Task[Any]]) -> T:
    if (task := asyncio.current_task()) is not None:
        begun.append(task)
    return await work


def _run(loop: asyncio.AbstractEventLoop) -> None:
    # A Runner cancels the tasks that are left when the loop is stopped.
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
