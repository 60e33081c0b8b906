"""Flow -> gateway: one HTTP request for each stream, answered with JSON or server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeVar

from tg_client.transport.address import Address
from tg_client.transport.deadline import Deadline
from tg_client.transport.errors import WireError, connecting, make_incomplete, reading, refusal
from tg_client.transport.http_connection import HttpConnections, HttpResponse
from tg_client.transport.records import bytes_of, record_of, records_of
from tg_schema import ServiceSpec, TgError, decode
from tg_schema.errors import BadRequest, ProtocolError
from tg_schema.server_sent_events import ServerSentEvents
from tg_schema.service_spec import Req, Resp

T = TypeVar("T")

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest response that comes as one JSON body."""
_END_SECONDS = 1.0
"""Seconds to wait for the end of the body after the last record, so that the connection can be reused."""


class HttpTransport:
    """The HTTP transport. Leaving a stream early closes its connection, which is the cancel of HTTP.

    Args:
        address: the gateway.
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

    @asynccontextmanager
    async def stream(
        self, flow: str | None, spec: ServiceSpec[Req, Resp], request: Req, clock: Deadline
    ) -> AsyncIterator[AsyncIterator[Resp]]:
        """See `Transport`. The request is sent at once; the response's head is awaited with the first record."""
        self._connections.bind()
        url = self._address.service(flow, spec.name)
        opened: list[HttpResponse] = []
        posting = asyncio.create_task(self._post(url, bytes_of(request), opened), name="post")
        try:
            async with aclosing(self._records(posting, spec, clock)) as records:
                yield records
        finally:
            await _close(posting, opened)

    async def get(self, url: str, kind: type[T], clock: Deadline, method: str = "GET") -> T:
        """What the gateway has at a URL.

        Raises:
            TgError: the gateway refuses, or what it sends is no `kind`.
        """
        async with self._answered(method, url, "application/json", clock) as response:
            with reading(self._base):
                body = await clock.within(_body(response))
        return self._decode(kind, body)

    async def follow(self, url: str, kind: type[T], clock: Deadline) -> AsyncGenerator[T, None]:
        """The events at a URL, until the gateway ends them.

        Raises:
            TgError: as `get`, or they break off.
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

    async def _post(self, url: str, body: bytes, opened: list[HttpResponse]) -> HttpResponse:
        """Send the request.

        The response is also put into `opened`: a task that is cancelled just as it ends loses its return value.
        """
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        with connecting(self._base):
            opened.append(await self._connections.ask("POST", url, headers, body))
        return opened[0]

    async def _records(
        self, posting: asyncio.Task[HttpResponse], spec: ServiceSpec[Req, Resp], clock: Deadline
    ) -> AsyncGenerator[Resp, None]:
        response = await clock.within(posting)
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
                record = record_of(spec.response, data)
                yield record
                # After the yield: the time that the reader takes for a record is not the gateway's silence.
                clock.hear()
                if record.last:
                    await _finish(response)
                    return

    async def _refusal(self, response: HttpResponse, clock: Deadline) -> TgError:
        with connecting(self._base):
            body = await clock.within(_body(response))
        return refusal(self._base, response.status, response.headers.get("retry-after"), body)

    async def _whole(self, response: HttpResponse, spec: ServiceSpec[Req, Resp], clock: Deadline) -> Sequence[Resp]:
        with reading(self._base):
            records = records_of(spec.response, await clock.within(_body(response)))
        if not records[-1].last:
            raise make_incomplete(self._base)
        return records


async def _body(response: HttpResponse) -> bytes:
    parts: list[bytes] = []
    left = MAX_BODY_BYTES
    while part := await response.read():
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise ProtocolError(f"the gateway's answer is larger than {MAX_BODY_BYTES} bytes")
    return b"".join(parts)


async def _finish(response: HttpResponse) -> None:
    """Read the end of the body; if the gateway does not send it, the connection is not reused."""
    with suppress(TimeoutError, WireError):
        async with asyncio.timeout(_END_SECONDS):
            while await response.read():
                pass


async def _close(posting: asyncio.Task[HttpResponse], opened: list[HttpResponse]) -> None:
    """Close unfinished responses: closing the connection tells the gateway to stop."""
    posting.cancel()
    await asyncio.wait([posting])
    if not posting.cancelled():
        # Retrieve the exception, or asyncio would log the error of a request that is no longer awaited.
        posting.exception()
    for response in opened:
        await response.close()
