"""Requestor -> processors: cancels, heartbeats and nacks, sent in the background: leaving a stream never waits."""

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from tg_base.bus import Bus
from tg_base.protocol import Announce, Cancel, Control, StreamKey
from tg_schema import TgError, encode
from tg_schema.topics import Topics

log = structlog.get_logger()

MAX_OUTBOX_MESSAGES = 10_000
"""Control messages that may be buffered; any more are dropped, since every heartbeat repeats what matters."""
CANCEL_REPEAT_SECONDS = 5.0
"""Seconds for which every heartbeat repeats a cancel, in case it was lost."""
MAX_PENDING_CANCELS = 1_000
"""Messages that are published concurrently, so that one slow publish does not delay the others."""


class ControlSender:
    """The outgoing control messages of one requestor. `run` must be running as a task."""

    def __init__(self, bus: Bus, topics: Topics, time: Callable[[], float]) -> None:
        self._bus = bus
        self._topics = topics
        self._time = time
        self._outbox: asyncio.Queue[tuple[str, Control]] = asyncio.Queue(MAX_OUTBOX_MESSAGES)
        self._cancelled: dict[tuple[str, StreamKey], float] = {}

    def say(self, processor: str, control: Control) -> None:
        """Send to one processor."""
        self._put(self._topics.control(processor), control)

    def cancel(self, processor: str, key: StreamKey) -> None:
        """Stop an attempt that runs on this processor; repeated for `CANCEL_REPEAT_SECONDS`."""
        # Set once: a processor that goes on sending must not prolong the repetition for ever.
        if (processor, key) not in self._cancelled:
            self._cancelled[processor, key] = self._time() + CANCEL_REPEAT_SECONDS
        self.say(processor, Cancel((key,), CANCEL_REPEAT_SECONDS))

    def cancel_queued(self, queue: str, key: StreamKey, ttl: float) -> None:
        """Stop an attempt that is queued or on any processor of that queue; they remember it for `ttl` seconds."""
        self._put(self._topics.queue_control(queue), Cancel((key,), ttl))

    def recently_cancelled(self, processor: str) -> tuple[StreamKey, ...]:
        """The cancels that a heartbeat to this processor repeats."""
        return tuple(key for to, key in self._cancelled if to == processor)

    def sweep(self) -> None:
        """Forget the cancels that were repeated for `CANCEL_REPEAT_SECONDS`."""
        now = self._time()
        for stale in [entry for entry, until in self._cancelled.items() if until < now]:
            del self._cancelled[stale]

    def ask_presence(self, queue: str) -> None:
        """Ask the processors of a queue to announce themselves now."""
        self._put(self._topics.queue_control(queue), Announce())

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._outbox.join()

    async def run(self) -> None:
        """Send, until cancelled."""
        room = asyncio.Semaphore(MAX_PENDING_CANCELS)
        async with asyncio.TaskGroup() as sends:
            while True:
                topic, control = await self._outbox.get()
                await room.acquire()
                sends.create_task(self._send(topic, control)).add_done_callback(lambda _: room.release())

    async def _send(self, topic: str, control: Control) -> None:
        try:
            await self._bus.publish(topic, encode(control), {})
        except TgError as error:
            log.warning("control.lost", control=type(control).__name__, error=error.type)
        finally:
            self._outbox.task_done()

    def _put(self, topic: str, control: Control) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._outbox.put_nowait((topic, control))
