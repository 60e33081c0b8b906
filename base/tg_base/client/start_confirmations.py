"""Requestor -> processor: answers a processor's questions before it begins: for a confirmation, or for a large body."""

import asyncio
from typing import Any

import structlog

from tg_base.bus import Bus
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.control_sender import ControlSender
from tg_base.client.response_stream import AskedStream
from tg_base.protocol import WINDOW_BYTES, Confirmed, Part, StreamKey
from tg_base.runtime import start_task
from tg_schema import TgError
from tg_schema.errors import TooLarge
from tg_schema.topics import Topics

LEAST_PART_BYTES = 16 * 1024
"""Bytes of a part that is not halved any more: no broker's limit is as low."""

log = structlog.get_logger()


class StartConfirmations:
    """Answers processors about streams that have no record yet; about any other stream they get a cancel.

    One task sends each stream's body, with at most `WINDOW_BYTES` in flight.

    Args:
        bus: carries the parts of bodies.
        topics: the names of our own topics.
        controls: sends to processors.
    """

    def __init__(self, bus: Bus, topics: Topics, controls: ControlSender) -> None:
        self._bus = bus
        self._topics = topics
        self._controls = controls
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sending: dict[str, asyncio.Task[Any]] = {}
        self._part_bytes = WINDOW_BYTES

    def close(self) -> None:
        """Send nothing more, and cancel the checks of permits that are still running."""
        for task in self._tasks:
            task.cancel()

    def confirm(self, stream: AskedStream, processor: str, question: int) -> None:
        """Confirm that a processor may begin (after its permit, if there is one), or cancel if a record has come."""
        # What is adopted was permitted by the requestor that is gone.
        if stream.failed or (stream.relayed and not stream.adopted):
            self._controls.cancel(processor, stream.key)
        elif (permit := stream.permit) is None or permit.sent != stream.attempt:
            self._controls.send(processor, Confirmed(stream.key, question))
        elif permit.granted:
            self._permit(permit, stream, processor, question)
        else:
            start_task(self._tasks, self._permit_granted(permit, stream, processor, question))

    def fetch(self, stream: AskedStream, processor: str, offset: int) -> None:
        """Send the body of a large request, unless the answer is not wanted any more."""
        if stream.relayed or stream.failed:
            self._controls.cancel(processor, stream.key)
            return
        stream.fetched = True
        self._send_body(processor, stream.key, stream.body, offset)
        permit = stream.permit
        if permit is not None and len(stream.body) <= offset + WINDOW_BYTES:
            permit.sent = stream.attempt
            # Ask for the permit while the body is on its way, so that the processor need not wait for it later.
            start_task(self._tasks, permit.grant())

    def _permit(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        permit.begun = not permit.repeats
        self._controls.send(processor, Confirmed(stream.key, question))

    async def _permit_granted(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        key = stream.key
        granted = await permit.grant()
        # The stream may have ended meanwhile, or moved to another processor, which will ask for itself.
        if granted and not (stream.relayed or stream.failed) and (stream.processor, stream.key) == (processor, key):
            self._permit(permit, stream, processor, question)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose body is being sent."""
        return tuple(self._sending)

    def _send_body(self, processor: str, key: StreamKey, body: bytes, offset: int) -> None:
        """Send `WINDOW_BYTES` of a body from this offset on; replaces a transfer of this stream that still runs."""
        self.stop(key.stream)
        task = self._sending[key.stream] = start_task(self._tasks, self._send(processor, key, body, offset))
        task.add_done_callback(lambda task: self._forget(key.stream, task))

    def stop(self, stream: str) -> None:
        """Stop sending this stream's body."""
        task = self._sending.pop(stream, None)
        if task is not None:
            task.cancel()

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

    def _forget(self, stream: str, task: asyncio.Task[Any]) -> None:
        if self._sending.get(stream) is task:
            del self._sending[stream]
