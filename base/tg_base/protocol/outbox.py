"""Either end -> bus: messages sent in the background, a bounded number at a time; nobody waits for them."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextvars import Context

import structlog

from tg_base.bus import Bus
from tg_schema import TgError, encode

log = structlog.get_logger()

MAX_WAITING_MESSAGES = 10_000
"""Messages that may wait to be sent; any more are dropped, because every heartbeat repeats the important facts."""
MAX_CONCURRENT_MESSAGES = 1_000
"""Messages that are published concurrently, so that one slow publish does not delay the others."""

_Message = tuple[str, object, Mapping[str, str]]


class Outbox:
    """Sends a process's messages other than requests and links. One that the bus does not take is logged and dropped.

    Args:
        bus: carries the messages.
        watched: the topic whose `refusal` is recorded.

    Attributes:
        refusal: why the bus did not take the last message to the watched topic; None = it did, or there was none.
    """

    def __init__(self, bus: Bus, watched: str | None = None) -> None:
        self.refusal: str | None = None
        self._bus = bus
        self._watched = watched
        self._waiting: deque[_Message] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, topic: str, message: object, properties: Mapping[str, str] | None = None) -> None:
        """Send a record. Messages are sent in the order of `put`, as long as the bus keeps up."""
        if self._closed:
            return
        if len(self._sending) < MAX_CONCURRENT_MESSAGES:
            self._start((topic, message, properties or {}))
        elif len(self._waiting) < MAX_WAITING_MESSAGES:
            self._waiting.append((topic, message, properties or {}))

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most this long."""
        end = asyncio.get_running_loop().time() + seconds
        while self._sending and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._sending, timeout=left)

    def close(self) -> None:
        """Send nothing more, whatever is put."""
        self._closed = True
        self._waiting.clear()
        for sending in self._sending:
            sending.cancel()

    def _start(self, message: _Message) -> None:
        # Without the caller's context: it would keep the trace of the request at hand.
        task = asyncio.get_running_loop().create_task(self._send(*message), context=Context())
        self._sending.add(task)
        task.add_done_callback(self._on_sent)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if self._waiting:
            self._start(self._waiting.popleft())

    async def _send(self, topic: str, message: object, properties: Mapping[str, str]) -> None:
        refusal: str | None = None
        try:
            await self._bus.publish(topic, encode(message), properties)
        except TgError as error:
            log.warning("control.lost", control=type(message).__name__, reason=error.message)
            refusal = error.message
        if topic == self._watched:
            self.refusal = refusal
