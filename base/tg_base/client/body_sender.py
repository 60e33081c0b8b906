"""Requestor -> processor: the body of a large request, in parts, from where the processor asks."""

import asyncio

import structlog

from tg_base.bus import Bus
from tg_base.protocol import WINDOW_BYTES, Part, StreamKey
from tg_schema import TgError
from tg_schema.errors import TooLarge
from tg_schema.topics import Topics

LEAST_PART_BYTES = 16 * 1024
"""Bytes of a part that is not halved any more: no broker's limit is as low."""

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
        self._part_bytes = WINDOW_BYTES

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
        at, end = offset, min(offset + WINDOW_BYTES, len(body))
        # Send as few messages as the bus allows, one after the other: on a non-persistent topic, a broker drops
        # messages that come while it still writes the one before to the reader.
        try:
            while at < end:
                size = min(self._part_bytes, self._bus.max_message)
                if await self._fits(topic, body[at : at + size], Part(key, at)):
                    at += size
        except TgError as error:
            # The processor asks again for missing parts.
            log.warning("part.lost", stream=key.stream, error=error.type)

    async def _fits(self, topic: str, body: bytes, part: Part) -> bool:
        """Send a part, or halve the size of parts: the bus may not know how little its broker takes."""
        try:
            await self._bus.publish(topic, body, part.properties)
        except TooLarge:
            if len(body) <= LEAST_PART_BYTES:
                raise
            self._part_bytes = min(self._part_bytes, len(body) // 2)
            return False
        return True

    def _forget(self, stream: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(stream) is task:
            del self._sending[stream]
