"""Client's receives -> deliveries in the event loop: receives on demand, with one wake-up for each batch."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from tg_base.bus.core.api import Delivery
from tg_base.bus.core.handoff import Handoff
from tg_base.bus.core.wait_queue import WaitQueue
from tg_schema import TgError

LAST_RECEIVE_SECONDS = 5.0
"""Seconds that `close` waits for the answer to the last receive."""

Raw = TypeVar("Raw")


class Source(Protocol[Raw]):
    """A subscription with at most one receive in progress."""

    def receive(self, taken: Callable[[Raw | TgError], None]) -> None:
        """Ask for the next message, and return at once. Any thread may call it.

        Args:
            taken: called once, in any thread and perhaps before this returns, with the client's message, or with the
                error that has ended the source.
        """

    def open(self, message: Raw) -> Delivery:
        """Turn a message of the client into an object for the event loop."""

    def close(self) -> None:
        """Answer the `receive` that is under way with an error, and all later ones. Blocks."""


class BoundedReader(AsyncIterator[Delivery], Generic[Raw]):
    """Iterated in the loop; several tasks may wait, and each message goes to one of them. A cancelled wait loses none.

    The reader has no thread: the callback of a receive, or a call for a message, begins the next receive.

    Args:
        loop: the loop that iterates.
        source: what to read; closed by `close`.
        ahead: messages that are received before any task asks. With 0, one is received only for a waiting task.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Source[Raw], ahead: int) -> None:
        self._loop = loop
        self._source = source
        self._ahead = ahead
        self._handover: Handoff[Raw] = Handoff(loop, self._on_arrived)
        self._waiting = WaitQueue()
        self._wanted = 0
        self._under_way = threading.Lock()
        self._asking: set[int] = set()
        self._over = False
        self._ended = False
        self._error: TgError | None = None
        self._ask()

    @override
    async def __anext__(self) -> Delivery:
        items = self._handover.items
        while not self._ended:
            if items:
                message = items.popleft()
                self._ask()
                return self._source.open(message)
            self._wanted += 1
            try:
                self._ask()
                # If the client had buffered a message, it has arrived by now.
                if not items:
                    await self._waiting.wait()
            finally:
                self._wanted -= 1
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def _on_arrived(self) -> None:
        for _ in range(min(len(self._handover.items), len(self._waiting))):
            self._waiting.wake()

    def end(self, error: TgError | None = None) -> None:
        """End the iteration of all waiting tasks, with the error if one is given. In the loop only."""
        if not self._ended:
            self._over = self._ended = True
            self._error = error
            self._waiting.wake_all()

    def close(self) -> None:
        """Close the source and wait until nothing is received any more. May be called in any thread but the client's.

        The client would abort a process that ends while a Python callback is still to be called.
        """
        self._over = self._ended = True
        self._source.close()
        self._under_way.acquire(timeout=LAST_RECEIVE_SECONDS)

    def _ask(self) -> None:
        """Receive until enough messages are buffered, or none is available at once. Any thread may call it."""
        # If a receive is under way, the thread that takes its answer calls this again.
        if self._enough or self._under_way.locked():
            return
        thread = threading.get_ident()
        self._asking.add(thread)
        while not self._enough and self._under_way.acquire(blocking=False):
            # Only the holder of `_under_way` adds items: this check is exact, the one above may be out of date.
            if self._enough:
                self._under_way.release()
            else:
                self._source.receive(self._take)
        self._asking.discard(thread)

    def _take(self, answer: Raw | TgError) -> None:
        # Mostly called in a thread of the client's: an exception that reached it would end the process.
        if isinstance(answer, TgError):
            self._over = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.end, answer)
        else:
            self._handover.put(answer)
        self._under_way.release()
        # If `_ask` has called this, it continues by itself: with a long backlog, recursion would exhaust the stack.
        if threading.get_ident() not in self._asking:
            self._ask()

    @property
    def _enough(self) -> bool:
        return self._over or len(self._handover.items) >= self._ahead + self._wanted
