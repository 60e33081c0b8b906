"""Blocking receive -> deliveries in the event loop: one thread for each subscription, one wake-up for each batch."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Protocol

import structlog
from typing_extensions import override

from tg_base.bus.core.api import Delivery
from tg_base.bus.core.handoff import Handoff
from tg_base.bus.core.wait_queue import WaitQueue
from tg_base.runtime import translate_defects
from tg_schema import TgError
from tg_schema.errors import BusError

log = structlog.get_logger()

JOIN_TIMEOUT_SECONDS = 5.0
"""Seconds that `close` waits for the thread to end."""

_DEFECT = "the thread that receives from the bus has failed; its log says why"


class Source(Protocol):
    """A blocking subscription that the thread reads."""

    def receive(self) -> Delivery:
        """Wait for the next message, without a time limit.

        Raises:
            TgError: the source is closed or has failed.
        """

    def close(self) -> None:
        """End a `receive` that waits in another thread, and all later ones."""


class ThreadedReader(AsyncIterator[Delivery]):
    """Iterated in the loop; several tasks may wait, and each message goes to one of them. A cancelled wait loses none.

    Args:
        loop: the loop that iterates.
        source: what to read; closed by `close`.
        ahead: messages that the thread receives before any task asks. With 0, it receives only for a waiting task.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Source, ahead: int) -> None:
        self._loop = loop
        self._source = source
        self._ahead = ahead
        self._handover: Handoff[Delivery] = Handoff(loop, self._on_arrived)
        self._waiting = WaitQueue()
        self._wanted = 0
        self._asked = threading.Event()
        self._parked = False
        self._ended = False
        self._error: TgError | None = None
        self._thread = threading.Thread(target=self._receive, name="bus-reader", daemon=True)
        self._thread.start()

    @override
    async def __anext__(self) -> Delivery:
        items = self._handover.items
        while not self._ended:
            if items:
                delivery = items.popleft()
                self._ask()
                return delivery
            self._wanted += 1
            self._ask()
            try:
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
            self._ended = True
            self._error = error
            self._waiting.wake_all()

    def close(self) -> None:
        """Close the source and wait for the thread to end. May be called in any other thread."""
        self._ended = True
        self._asked.set()
        self._source.close()
        self._thread.join(JOIN_TIMEOUT_SECONDS)

    def _receive(self) -> None:
        put, receive = self._handover.put, self._source.receive
        try:
            # Without the translation, the tasks that wait for this thread would wait for ever.
            with translate_defects(BusError, _DEFECT, "bus_reader.died", log):
                while self._wait_asked():
                    put(receive())
        except TgError as error:
            self._end_soon(error)

    def _end_soon(self, error: TgError) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.end, error)

    def _wait_asked(self) -> bool:
        while self._enough and not self._ended:
            # Parked first and then looked again, as the loop changes the count first and then looks who is parked.
            self._asked.clear()
            self._parked = True
            if self._enough and not self._ended:
                self._asked.wait()
            self._parked = False
        return not self._ended

    @property
    def _enough(self) -> bool:
        return len(self._handover.items) >= self._ahead + self._wanted

    def _ask(self) -> None:
        if self._parked:
            self._asked.set()
