"""Door -> requestor -> door: asks, relays what comes, measures it, and ends it when the gateway leaves."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from tg_base.requestor import Requestor
from tg_base.response_stream import ResponseStream
from tg_gateway.access_line import AccessLine
from tg_gateway.directory import Endpoint
from tg_gateway.metrics import STREAMING
from tg_gateway.sink import Sink
from tg_schema.errors import Unavailable

LAST_WORDS = 1.0
"""Seconds that running requests get to pass their error on, after the drain's time is over."""


class Exchange:
    """One running request: its responses, and the clocks on them."""

    def __init__(self, endpoint: Endpoint, responses: ResponseStream[Any], line: AccessLine) -> None:
        self.endpoint = endpoint
        self.responses = responses
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._sent_at = 0.0

    async def relay(self, sink: Sink) -> None:
        """Send every record as it comes, until the last.

        Raises:
            TgError: the stream failed; what came before has been sent.
        """
        event = self.endpoint.dialect.event
        async for record in self.responses:
            sink.send(event(record), last=record.last)
            self._sent()
            if sink.full:
                await sink.drain()

    async def whole(self) -> bytes:
        """The whole answer as one record's JSON.

        Raises:
            TgError: the stream failed.
        """
        records = [record async for record in self.responses]
        self._line.records = len(records)
        return self.endpoint.dialect.event(self.endpoint.route.spec.response.joined(records)[-1])

    def _sent(self) -> None:
        now = self._loop.time()
        if self._line.records:
            self.endpoint.gap.observe(now - self._sent_at)
        else:
            self._line.first = time.monotonic() - self._line.started
            self.endpoint.first_token.observe(self._line.first)
        self.endpoint.overhead.observe(now - self.responses.came)
        self._line.records += 1
        self._sent_at = now


class Relay:
    """All running requests of the gateway.

    Args:
        requestor: this process's end of the bus.
        timeout: seconds for a whole answer.
    """

    def __init__(self, requestor: Requestor, timeout: float) -> None:
        self._requestor = requestor
        self._timeout = timeout
        self._running: set[ResponseStream[Any]] = set()
        self._ended = asyncio.Event()
        self.draining = False

    @asynccontextmanager
    async def ask(self, endpoint: Endpoint, request: Any, line: AccessLine) -> AsyncIterator[Exchange]:
        """Ask, and relay inside `async with`; leaving early stops the work, wherever it is done.

        Raises:
            TgError: as `Requestor.stream`, and Unavailable where the gateway is about to leave.
        """
        if self.draining:
            raise Unavailable("the gateway is shutting down; ask again", retry_after=1.0)
        async with self._requestor.stream(endpoint.route, request, timeout=self._timeout) as responses:
            line.stream = responses.id
            structlog.contextvars.bind_contextvars(stream=responses.id)
            self._running.add(responses)
            STREAMING.inc()
            try:
                yield Exchange(endpoint, responses, line)
            finally:
                STREAMING.dec()
                self._running.discard(responses)
                self._ended.set()

    async def drain(self, seconds: float) -> None:
        """Refuse what is new, give what runs this long, then end it with an error."""
        self.draining = True
        await self._until_idle(seconds)
        for responses in list(self._running):
            responses.fail(Unavailable("the gateway is shutting down; ask again", retry_after=1.0))
        await self._until_idle(LAST_WORDS)

    async def _until_idle(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    self._ended.clear()
                    await self._ended.wait()
