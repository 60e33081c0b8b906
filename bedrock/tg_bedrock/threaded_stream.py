"""Blocking iterator -> batches in the event loop: one thread per stream, at most `ahead` items buffered."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import closing
from contextvars import copy_context
from types import TracebackType
from typing import Generic, Self, TypeVar

from tg_base.bus import Handoff
from tg_bedrock.abortable_socket import AbortableSocket

T = TypeVar("T")

MAX_WAITING_EVENTS = 64
"""Items buffered per stream; beyond it the thread stops reading, and TCP slows the provider down."""


class ThreadedStream(Generic[T]):
    """Runs `read` in a thread of `threads` while entered. Leaving it shuts down the thread's socket, which ends it.

    `batch` raises the errors of `read`, after all items before them.
    """

    def __init__(
        self, threads: Executor, read: Callable[[], Generator[T, None, None]], ahead: int = MAX_WAITING_EVENTS
    ) -> None:
        self._threads = threads
        self._read = read
        self._room = threading.Semaphore(ahead)
        self._socket = AbortableSocket()
        self._left = False
        self._ended = False

    async def __aenter__(self) -> Self:
        self._arrived = asyncio.Event()
        self._handover: Handoff[T | None] = Handoff(asyncio.get_running_loop(), self._arrived.set)
        # In the caller's context, which has the request's ids.
        self._thread = self._threads.submit(copy_context().run, self._hand_over)
        self._thread.add_done_callback(lambda _: self._handover.put(None))
        return self

    async def batch(self) -> list[T]:
        """All items since the last call, at least one; an empty list at the end.

        Raises:
            Exception: the one that `read` raised.
        """
        taken: list[T] = []
        while not taken and not self._ended:
            await self._arrived.wait()
            self._arrived.clear()
            self._take(taken)
        if not taken:
            self._thread.result()
        return taken

    def _take(self, taken: list[T]) -> None:
        items = self._handover.items
        while items and not self._ended:
            item = items.popleft()
            if item is None:
                self._ended = True
            else:
                taken.append(item)
        if taken:
            self._room.release(len(taken))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._left = True
        self._thread.cancel()  # This has an effect only if the thread has not begun.
        self._socket.cut()
        # The thread may wait for room instead of the socket; it then finds `_left`.
        self._room.release()

    def _hand_over(self) -> None:
        with self._socket.guard(), closing(self._read()) as items:
            for item in items:
                self._room.acquire()
                if self._left:
                    return
                self._handover.put(item)
