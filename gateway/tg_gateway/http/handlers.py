"""HTTP transport: one request in, within the limits; one body or a stream of bytes out, in its mount's protocol."""

from collections.abc import Awaitable, Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import web

from tg_base.config import GatewayConfig
from tg_base.runtime import MAX_QUICK_BYTES, is_costly
from tg_base.telemetry import LOAD_REQUEST_HEADER
from tg_gateway.access import LargeBodies, Limits
from tg_gateway.dialects import (
    KEEP_HEADER,
    Answer,
    Ask,
    Background,
    Keep,
    KeptStreams,
    LiveFigures,
    StreamedAnswer,
    Writer,
    join_output,
)
from tg_gateway.http.body_reader import BodyReader
from tg_gateway.http.body_stream import BodyStream
from tg_gateway.http.load_headers import LoadHeaders
from tg_gateway.http.middleware import CORS_HEADERS, DOOR, ENTRY, make_response
from tg_gateway.jobs import JobRequests
from tg_gateway.parsing import CallParser
from tg_gateway.relay import Exchange, HeldEnd, Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BadRequest, RateLimited, Unavailable


class HttpHandlers:
    """The handlers of all mounts that are not sockets."""

    def __init__(
        self,
        relay: Relay,
        config: GatewayConfig,
        limits: Limits,
        *,
        parser: CallParser,
        loads: LoadHeaders,
        live: LiveFigures,
        jobs: JobRequests,
        streams: KeptStreams,
    ) -> None:
        self._streams = streams
        self._relay = relay
        self._store = jobs.store
        self._jobs = jobs
        self._parser = parser
        self._live = live
        self._loads = loads
        self._config = config
        self._limits = limits
        self._body_reader = BodyReader(config.body_limit, limits)
        self._large_bodies = LargeBodies(config.body_limit, config.large_bodies)

    async def answer(self, request: web.Request, reader: BodyReader | None = None) -> web.StreamResponse:
        """Read, ask, and write the answer. Raises errors that come before its first byte, for the caller to answer."""
        entry, mount = request[ENTRY], request[DOOR].mount
        if reader is None and mount is not None and mount.large:
            with self._large_bodies.open(entry.key) as count:
                return await self.answer(request, BodyReader(self._config.large_body_limit, self._limits, count))
        asked = await self._parse(request, reader or self._body_reader, entry)
        if not isinstance(asked, Ask):
            return await self._reply(request, asked)
        period = request.headers.get(KEEP_HEADER, asked.route.keep)
        if not (asked.background is None and period is None):
            apart = await self._answer_apart(request, asked, entry, period)
            if apart is not None:
                return apart
        wanted = request.headers.get(LOAD_REQUEST_HEADER)
        async with self._relay.ask(asked, entry) as exchange:
            if asked.on_accepted is not None:
                exchange.responses.listen_accepted(asked.on_accepted)
            if asked.streaming:
                load = self._loads.make(wanted, asked.route) if wanted else {}
                streaming = self._stream(request, exchange, asked.writer, asked.keep, load)
                # A prompt may be long, and an answer may take minutes.
                del asked
                return await streaming
            whole = await exchange.write_whole(asked.writer)
        if asked.keep is not None:
            # Keep it before sending it, since the client may continue from it at once.
            await self._store.keep(entry.key, asked.keep)
        load = self._loads.make(wanted, asked.route) if wanted else {}
        headers = {"X-Stream-Id": exchange.responses.id, **load, **asked.writer.headers}
        return make_response(Answer(join_output(whole), 200, asked.writer.content_type, headers))

    async def _answer_apart(
        self, request: web.Request, asked: Ask, entry: AccessLogEntry, period: str | None
    ) -> web.StreamResponse | None:
        """The answer if it is made apart from the connection; otherwise None."""
        background = asked.background
        if period is not None:
            background = self._keep(request, asked, period) or background
        if background is None:
            return None
        try:
            log = await self._jobs.put(asked, background, entry)
        except (RateLimited, Unavailable):
            # Where only its flow asks for it, its client gets the stream also if it cannot be kept.
            if asked.background is None and KEEP_HEADER not in request.headers:
                return None
            raise
        return await self._reply(request, background.answer(self._store.of(entry.key, bounded=False, log=log)))

    def _keep(self, request: web.Request, asked: Ask, period: str) -> Background | None:
        """How a stream is kept; None if it cannot be, and only its flow asks for that."""
        door = request[DOOR]
        try:
            if not (door.call.stores and asked.streaming and asked.background is None and door.mount is not None):
                raise BadRequest(
                    f"{KEEP_HEADER}: only a stream is kept, and none for a key with store = false; leave the header out"
                )
            return self._streams.keep(asked.writer, door.mount.door, period)
        except BadRequest:
            if KEEP_HEADER in request.headers:
                raise
            return None

    async def _parse(
        self, request: web.Request, reader: BodyReader, entry: AccessLogEntry
    ) -> Ask | Answer | StreamedAnswer:
        dialect, call, route = request[DOOR].dialect, request[DOOR].call, None
        self._relay.reading += 1
        try:
            dialect.check_head(call)
            body = await reader.read(request)
            while True:
                call.body = body
                costly = len(body) > MAX_QUICK_BYTES and is_costly(body)
                parsed = self._parser.parse(dialect, call) if costly else dialect.parse(call)
                if isinstance(parsed, Awaitable):
                    call.kept, call.live, call.streams = self._store.of(entry.key), self._live, self._streams
                    asked = await parsed
                else:
                    asked = parsed
                if not isinstance(asked, Ask):
                    return asked
                route = asked.route
                # Check first: every request passes here, and only those of our first seconds have to wait. A processor
                # of the plain protocol announces nothing, and always counts.
                known = asked.background or route.plain or self._relay.admission.find(route.request).served
                if known or not await self._relay.until_served(route):
                    return asked
                # The dialect has parsed the request before any processor had announced the model's features: again.
        finally:
            if found := route or call.route:
                entry.flow, entry.service = found.flow, found.spec.name
            self._relay.note_read()

    async def _reply(self, request: web.Request, answer: Answer | StreamedAnswer) -> web.StreamResponse:
        """An answer that needs no service; one that streams fails as `_stream`."""
        if isinstance(answer, Answer):
            return make_response(answer)
        with self._open(request, answer, {}) as body:
            try:
                await self._send_parts(request, answer, body)
            except TgError as error:
                if not body.started:
                    raise
                body.fail(error)
        return body

    def _open(
        self, request: web.Request, head: Writer[Any] | StreamedAnswer, more_headers: Mapping[str, str]
    ) -> BodyStream:
        entry = request[ENTRY]
        entry.door = "sse"
        cors = request[CORS_HEADERS]
        headers = {"X-Request-Id": entry.request, **more_headers, **cors}
        return BodyStream(request, head, headers, self._config.keep_alive, self._limits.write)

    async def _send_parts(self, request: web.Request, answer: StreamedAnswer, body: BodyStream) -> None:
        # Close it now, not at some garbage collection: it may hold a subscription.
        async with aclosing(answer.parts) as parts:
            if request.method == "HEAD":
                body.send_head()
                return
            async for part in parts:
                body.send(part, last=False)
                await body.drain()
        body.send(b"", last=True)

    async def _stream(
        self,
        request: web.Request,
        exchange: Exchange,
        writer: Writer[Any],
        keep: Keep | None,
        more_headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Relay the answer. Raises errors that come before its first byte, for the caller to answer with a status."""
        with self._open(request, writer, {"X-Stream-Id": exchange.responses.id, **more_headers}) as body:
            del more_headers
            try:
                if keep is None:
                    await exchange.relay(writer, body)
                else:
                    await self._relay_kept(exchange, writer, keep, body)
            except TgError as error:
                if not body.started:
                    raise
                body.fail(error)
            # There may be many last bytes, written after the relay has ended.
            if body.full:
                await body.drain()
        return body

    async def _relay_kept(self, exchange: Exchange, writer: Writer[Any], keep: Keep, body: BodyStream) -> None:
        held = HeldEnd(body)
        await exchange.relay(writer, held)
        await self._store.keep(exchange.entry.key, keep)
        held.release()
