"""Flow -> gateway: one HTTP request for each stream, answered with JSON or server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from tg_client.transport.address import Address
from tg_client.transport.deadline import Deadline
from tg_client.transport.errors import connecting, make_incomplete, reading, refusal
from tg_client.transport.http_connection import HttpConnections, HttpResponse
from tg_client.transport.position import Position
from tg_client.transport.records import bytes_of, record_of, records_of
from tg_schema import ServiceSpec, TgError, decode
from tg_schema.errors import BadRequest, ProtocolError
from tg_schema.live import StoppedStream
from tg_schema.server_sent_events import ServerSentEvents
from tg_schema.service_spec import Req, Resp

T = TypeVar("T")

_STOP_SECONDS = 1.0
"""Seconds to wait for the id of a kept stream that is left before its response's head arrives, and for its stop."""
_KEPT = "ks-"
"""The prefix of a kept stream's id."""


class HttpTransport:
    """The HTTP transport. Leaving a stream early closes its connection, which is the cancel of HTTP.

    Args:
        connections: the connections to the gateway, with the token in their headers.
        connections: with the token in their headers.
        idle: seconds of silence, without even a keep-alive comment, after which an event stream fails.
    """

    def __init__(self, address: Address, connections: HttpConnections, idle: float) -> None:
        self._address = address
        self._base = address.base
        self._connections = connections
        self.idle = idle

    @property
    def lost(self) -> bool:
        """See `Transport`."""
        return self._connections.closed

    def stream(
        self, flow: str | None, spec: ServiceSpec[Req, Resp], request: Req, clock: Deadline, position: Position
    ) -> AbstractAsyncContextManager[AsyncIterator[Resp]]:
        """See `Transport`. The request is sent at once. The response's head is awaited with the first record."""
        position.begin()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        if position.keep is not None:
            headers["X-Tokengrid-Keep"] = position.keep
        url = self._address.service(flow, spec.name)
        return self._read(
            partial(self._connections.ask, "POST", url, headers, bytes_of(request)), spec, clock, position
        )

    def attach(
        self, spec: ServiceSpec[Req, Resp], clock: Deadline, position: Position
    ) -> AbstractAsyncContextManager[AsyncIterator[Resp]]:
        """As `stream`, for the records of a kept stream after a position in it."""
        url = f"{self._address.kept(position.stream or '')}?offset={position.after}"
        return self._read(
            partial(self._connections.ask, "GET", url, {"Accept": "text/event-stream"}), spec, clock, position
        )

    async def cancel(self, position: Position) -> None:
        """Stop a kept stream, if the gateway can be reached."""
        with suppress(TgError):
            url = f"{self._address.kept(position.stream or '')}/cancel"
            await self.get(url, StoppedStream, Deadline(_STOP_SECONDS), "POST")
            position.over = True

    @asynccontextmanager
    async def _read(
        self,
        ask: Callable[[], Awaitable[HttpResponse]],
        spec: ServiceSpec[Req, Resp],
        clock: Deadline,
        position: Position,
    ) -> AsyncIterator[AsyncIterator[Resp]]:
        self._connections.bind()
        opened: list[HttpResponse] = []
        opening = asyncio.create_task(self._open(ask, opened, position), name="open")
        try:
            async with aclosing(self._records(opening, spec, clock, position)) as records:
                yield records
        finally:
            if position.keep is not None and position.stream is None:
                # The response's head is on its way. It has the id, without which nobody could stop the kept stream.
                await asyncio.wait([opening], timeout=_STOP_SECONDS)
            await _close_responses(opening, opened)

    async def get(self, url: str, kind: type[T], clock: Deadline, method: str = "GET") -> T:
        """Request a URL and decode the answer.

        Raises:
            TgError: the gateway refuses, or its answer is not a `kind`.
        """
        async with self._answered(method, url, "application/json", clock) as response:
            with reading(self._base):
                body = await clock.within(response.read_all())
        return self._decode(kind, body)

    async def follow(self, url: str, kind: type[T], clock: Deadline) -> AsyncGenerator[T, None]:
        """Iterate over the events at a URL, until the gateway ends them.

        Raises:
            TgError: as `get`, or the connection broke off.
        """
        events = ServerSentEvents()
        async with self._answered("GET", url, "text/event-stream", clock) as response:
            while True:
                with reading(self._base):
                    received = await clock.soon(response.read())
                if not received:
                    return
                for data in events.feed(received):
                    yield self._decode(kind, data)
                    clock.hear()

    @asynccontextmanager
    async def _answered(self, method: str, url: str, media: str, clock: Deadline) -> AsyncIterator[HttpResponse]:
        self._connections.bind()
        with connecting(self._base):
            response = await clock.within(self._connections.ask(method, url, {"Accept": media}))
        try:
            if response.status != 200:
                raise await self._refusal(response, clock)
            yield response
        finally:
            await response.close()

    def _decode(self, kind: type[T], data: bytes) -> T:
        try:
            return decode(kind, data)
        except BadRequest:
            raise ProtocolError(f"{self._base} sent something that is not what was asked for") from None

    async def _open(
        self, ask: Callable[[], Awaitable[HttpResponse]], opened: list[HttpResponse], position: Position
    ) -> HttpResponse:
        """Send the request.

        The response is also appended to `opened`: a task that is cancelled just as it ends loses its return value.
        """
        with connecting(self._base):
            opened.append(await ask())
        if (stream := opened[0].headers.get("x-stream-id", "")).startswith(_KEPT):
            position.begin(stream)
        return opened[0]

    async def _records(
        self, opening: asyncio.Task[HttpResponse], spec: ServiceSpec[Req, Resp], clock: Deadline, position: Position
    ) -> AsyncGenerator[Resp, None]:
        response = await clock.within(opening)
        if response.status == 204 and position.goes_on:
            # A kept stream has ended, and its reader already has all of it.
            position.over = True
            return
        if response.status != 200:
            raise await self._refusal(response, clock)
        if response.content_type != "text/event-stream":
            for record in await self._whole(response, spec, clock):
                yield record
            return
        events = ServerSentEvents()
        while True:
            with reading(self._base):
                received = await clock.soon(response.read())
            if not received:
                raise make_incomplete(self._base)
            for data in events.feed(received):
                try:
                    record = record_of(spec.response, data)
                except TgError:
                    # An error that is no kept record concerns only this reader, so another attempt may succeed.
                    position.over = events.last_id == b"%d" % (position.after + 1)
                    raise
                position.after += 1
                position.over = record.last
                yield record
                # Restart the clock after the yield: the reader's own time for a record is not the gateway's silence.
                clock.hear()
                if record.last:
                    await response.finish()
                    return

    async def _refusal(self, response: HttpResponse, clock: Deadline) -> TgError:
        with connecting(self._base):
            body = await clock.within(response.read_all())
        return refusal(self._base, response.status, response.headers.get("retry-after"), body)

    async def _whole(self, response: HttpResponse, spec: ServiceSpec[Req, Resp], clock: Deadline) -> Sequence[Resp]:
        with reading(self._base):
            records = records_of(spec.response, await clock.within(response.read_all()))
        if not records[-1].last:
            raise make_incomplete(self._base)
        return records


async def _close_responses(opening: asyncio.Task[HttpResponse], opened: list[HttpResponse]) -> None:
    """Close unfinished responses. Closing the connection tells the gateway to stop the stream unless it is kept."""
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled():
        # Retrieve the exception; otherwise asyncio would log the error of a request that nobody awaits any more.
        opening.exception()
    for response in opened:
        await response.close()
