"""Requestor -> processor: the body of a large request, in parts, from where the processor asks."""

import asyncio

import structlog

from tg_base.bus import Bus
from tg_base.protocol import WINDOW_BYTES, Part, StreamKey
from tg_schema import TgError
from tg_schema.topics import Topics

log = structlog.get_logger()


class BodySender:
    """One task for each stream whose body is being sent, with at most `WINDOW_BYTES` in flight.

    Args:
        bus: carries the parts.
        topics: the names of our own topics.
    """

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self._bus = bus
        self._topics = topics
        self._sending: dict[str, asyncio.Task[None]] = {}

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose body is being sent."""
        return tuple(self._sending)

    def send(self, processor: str, key: StreamKey, body: bytes, offset: int) -> None:
        """Send `WINDOW_BYTES` of a body from this offset on; replaces a transfer of this stream that still runs."""
        self.stop(key.stream)
        task = self._sending[key.stream] = asyncio.create_task(self._send(processor, key, body, offset))
        task.add_done_callback(lambda task: self._forget(key.stream, task))

    def stop(self, stream: str) -> None:
        """Stop sending this stream's body."""
        task = self._sending.pop(stream, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Send nothing more."""
        for stream in self.streams:
            self.stop(stream)

    async def _send(self, processor: str, key: StreamKey, body: bytes, offset: int) -> None:
        topic = self._topics.control(processor)
        # Send as few messages as the bus allows, one after the other: on a non-persistent topic, a broker drops
        # messages that come while it still writes the one before to the reader.
        size = min(WINDOW_BYTES, self._bus.max_message)
        try:
            for at in range(offset, min(offset + WINDOW_BYTES, len(body)), size):
                await self._bus.publish(topic, body[at : at + size], Part(key, at).properties)
        except TgError as error:
            # The processor asks again for missing parts.
            log.warning("part.lost", stream=key.stream, error=error.type)

    def _forget(self, stream: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(stream) is task:
            del self._sending[stream]
