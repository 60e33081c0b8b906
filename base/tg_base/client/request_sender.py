"""Requestor -> a work queue, or one process: a request, and the answers to its processor's questions before it begins.

A request travels in one message, or without its body: if it is too large for one, or needs a permit. The processor that
takes it asks for the body from an offset on ("fetch"), gets `WINDOW_BYTES` of it on its control topic, and asks again.
When it has all, or if the request may be a redelivery, it asks for a confirmation ("confirm"), which a permit may hold
back, and only then begins.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tg_base.bus import Bus
from tg_base.client.admission import Announced
from tg_base.client.asked_stream import AskedStream
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.control_sender import ControlSender
from tg_base.client.warm_processes import DIRECT_SECONDS, MAX_DIRECT_BYTES, WarmProcesses
from tg_base.protocol import WINDOW_BYTES, AwakeClock, Confirmed, Part, RequestHeaders, StreamKey
from tg_base.runtime import start_task
from tg_schema import TgError
from tg_schema.errors import BusError, TooLarge, Unavailable
from tg_schema.topics import Topics

LEAST_PART_BYTES = 16 * 1024
"""A part of this size is not halved any more: no broker's limit is so low."""
PUBLISH_TIMEOUT_SECONDS = 4.5
"""Seconds that the bus has to accept a request, which may itself have less."""

log = structlog.get_logger()


class RequestSender:
    """Sends requests, and answers processors about streams that have no record yet; otherwise they get a cancel.

    One task sends a stream's body, with at most `WINDOW_BYTES` in flight.

    Args:
        bus: carries the requests, and the parts of bodies.
        topics: the names of our own topics.
        inbox: where the answers come.
        clock: gives the time at which an attempt begins.
        controls: sends to processors.
        warm: knows which process has a request's prefix in memory.
        read_plain: reads a response topic of plain peers from now on.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        inbox: str,
        *,
        clock: AwakeClock,
        controls: ControlSender,
        warm: WarmProcesses,
        read_plain: Callable[[str], Awaitable[None]],
    ) -> None:
        self._bus, self._topics, self._inbox, self._clock = bus, topics, inbox, clock
        self._controls, self._warm, self._read_plain = controls, warm, read_plain
        self._tasks: set[asyncio.Task[Any]] = set()
        self._part_bytes = WINDOW_BYTES

    def close(self) -> None:
        """Send nothing more, and cancel the checks of permits that are still running."""
        for task in self._tasks:
            task.cancel()

    async def ask(self, stream: AskedStream, announced: Announced) -> None:
        """Publish the request of its current attempt.

        Raises:
            Unavailable: a processor of the queue does not support permits.
            BusError: the bus did not take the request.
            TooLarge: the request is over the limit of the bus, or of what every processor fetches in parts.
        """
        attempt, route = stream.attempt, stream.attempt.route
        queue = route.request
        terms = stream.terms
        withheld = terms.permit is not None
        if stream.cache_key is not None and attempt.key.attempt == 1 and not withheld:
            process = self._warm.choose(stream)
            if process is not None and await self._ask_directly(stream, process):
                return
        in_parts = not route.plain and len(stream.body) <= announced.request_bytes
        if withheld and not in_parts:
            raise Unavailable("a processor of this queue is of a version that begins at once; upgrade it, or ask later")
        # The terms are enough: nearly all requests that are published have just begun.
        seconds = min(PUBLISH_TIMEOUT_SECONDS, terms.timeout, terms.total or PUBLISH_TIMEOUT_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                if route.plain:
                    await self._read_plain(route.response)
                try:
                    large = len(stream.body) > self._bus.max_message
                    await self._publish(stream, queue, in_parts=in_parts and (large or withheld))
                except TooLarge:
                    # Only now may we learn that the broker's limit is lower.
                    if not in_parts:
                        raise
                    await self._publish(stream, queue, in_parts=True)
        except TimeoutError:
            # The publish may still succeed later: the stream's cancel is then read by whichever processor takes it.
            raise BusError("the bus did not take the request in time; ask again") from None

    async def _ask_directly(self, stream: AskedStream, process: str) -> bool:
        """Send a request to one process; False = the bus has not accepted it, and the queue gets another attempt."""
        attempt = stream.attempt
        try:
            async with asyncio.timeout(DIRECT_SECONDS):
                in_parts, topic = len(stream.body) > MAX_DIRECT_BYTES, self._topics.control(process)
                await self._publish(stream, topic, in_parts=in_parts, queue=attempt.route.request)
        except (TgError, TimeoutError):
            # The bus may have delivered it anyway: by now it may be taken, or be in the queue.
            if stream.attempt is attempt and attempt.processor is None:
                stream.begin_attempt(self._clock())
                return False
        return True

    async def _publish(self, stream: AskedStream, topic: str, *, in_parts: bool, queue: str | None = None) -> None:
        attempt, size, kept = stream.attempt, len(stream.body) if in_parts else 0, stream.terms.kept
        left = max(stream.remaining, 0.0)
        headers = RequestHeaders(attempt.key, self._inbox, left, span=attempt.span, size=size, queue=queue, kept=kept)
        await self._bus.publish(topic, b"" if in_parts else stream.body, headers.properties)

    def confirm(self, stream: AskedStream, processor: str, question: int) -> None:
        """Confirm that a processor may begin (after its permit, if there is one), or cancel if a record has come."""
        # The former requestor has permitted the answer that we adopt.
        key, permit = stream.attempt.key, stream.terms.permit
        if stream.failed or (stream.attempt.pieces and not stream.attempt.begun_as):
            self._controls.cancel(processor, key)
        elif permit is None or permit.sent != key.attempt:
            self._controls.send(processor, Confirmed(key, question))
        else:
            start_task(self._tasks, self._permit(permit, stream, processor, question))

    def fetch(self, stream: AskedStream, processor: str, offset: int) -> None:
        """Send the body of a large request from this offset on, unless the answer is not wanted any more."""
        key, permit = stream.attempt.key, stream.terms.permit
        if stream.attempt.answered or stream.failed:
            self._controls.cancel(processor, key)
            return
        if stream.sending is not None:
            stream.sending.cancel()
        stream.sending = start_task(self._tasks, self._send(processor, key, stream.body, offset))
        if permit is not None and len(stream.body) <= offset + WINDOW_BYTES:
            permit.sent = key.attempt
            # Ask for the permit while the body is on its way, so that the processor need not wait for it later.
            start_task(self._tasks, permit.grant())

    async def _permit(self, permit: BeginPermit, stream: AskedStream, processor: str, question: int) -> None:
        attempt = stream.attempt
        granted = await permit.grant()
        # The stream may have ended meanwhile, or moved to another processor, which will ask for itself.
        if granted and stream.attempt is attempt and not (attempt.answered or stream.failed):
            permit.begun = not permit.repeats
            self._controls.send(processor, Confirmed(attempt.key, question))

    async def _send(self, processor: str, key: StreamKey, body: bytes, offset: int) -> None:
        """Send `WINDOW_BYTES` of a body from this offset on."""
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
