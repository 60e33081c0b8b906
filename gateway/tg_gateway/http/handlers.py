"""HTTP transport: one request in, within the limits; one body or a stream of bytes out, in its mount's protocol."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from aiohttp import web

from tg_base.client import Requestor
from tg_base.config import GatewayConfig
from tg_base.runtime import MAX_QUICK_BYTES, is_costly
from tg_base.telemetry import LOAD_REQUEST_HEADER
from tg_gateway.access import LargeBodies, Limits
from tg_gateway.dialects import (
    IDEMPOTENCY_HEADER,
    KEEP_HEADER,
    Answer,
    Ask,
    KeptStreams,
    LiveFigures,
    StreamedAnswer,
    Writer,
    batches,
    digest_request,
    join_output,
)
from tg_gateway.http.body_reader import BodyReader
from tg_gateway.http.body_stream import BodyStream
from tg_gateway.http.keeping import UNMADE, plan_apart, read_keeping
from tg_gateway.http.load_headers import make_load_headers
from tg_gateway.http.middleware import CORS_HEADERS, DOOR, ENTRY, make_response
from tg_gateway.jobs import JobRequests
from tg_gateway.parsing import CallParser
from tg_gateway.relay import BeforeEnd, Exchange, Relay, send_parts
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError


class HttpHandlers:
    """The handlers of all mounts that are not sockets."""

    def __init__(
        self,
        relay: Relay,
        config: GatewayConfig,
        limits: Limits,
        *,
        parser: CallParser,
        requestor: Requestor,
        live: LiveFigures,
        jobs: JobRequests,
        streams: KeptStreams,
        open_batches: Callable[[str | None], batches.Store],
    ) -> None:
        self._streams = streams
        self._batches = open_batches
        self._relay = relay
        self._jobs = jobs
        self._parser = parser
        self._live = live
        self._requestor = requestor
        self._config = config
        self._limits = limits
        self._body_reader = BodyReader(config.body_limit, limits)
        self._large_bodies = LargeBodies(config.body_limit, config.large_bodies)

    async def answer(self, request: web.Request, reader: BodyReader | None = None) -> web.StreamResponse:
        """Read, ask, and write the answer. Raises errors that come before its first byte, for the caller to answer."""
        entry, mount, call = request[ENTRY], request[DOOR].mount, request[DOOR].call
        if reader is None and mount.large:
            with self._large_bodies.open(entry.key) as count:
                return await self.answer(request, BodyReader(self._config.large_body_limit, self._limits, count))
        asked = await self._parse(request, reader or self._body_reader, entry)
        if not isinstance(asked, Ask):
            return await self._reply(request, asked)
        if asked.headers:
            asked.writer.headers = {**asked.writer.headers, **asked.headers}
        # Before the end is sent, since the client may continue from the answer at once.
        stores = None if asked.keep is None else partial(self._jobs.store.keep, entry.key, asked.keep)
        if asked.background is not None or asked.route.keep or call.digest or KEEP_HEADER in request.headers:
            apart = await self._answer_apart(request, asked, entry, stores)
            if apart is not None:
                return apart
        wanted = request.headers.get(LOAD_REQUEST_HEADER)
        async with self._relay.ask(asked, entry) as exchange:
            if asked.on_accepted is not None:
                exchange.responses.listen_accepted(asked.on_accepted)
            if asked.streaming:
                load = make_load_headers(self._requestor, wanted, asked.route) if wanted else {}
                streaming = self._stream(request, exchange, asked.writer, stores, load)
                # A prompt may be long, and an answer may take minutes.
                del asked
                return await streaming
            whole = await exchange.write_whole(asked.writer, stores)
        load = make_load_headers(self._requestor, wanted, asked.route) if wanted else {}
        headers = {"X-Stream-Id": exchange.responses.id, **load, **asked.writer.headers}
        return make_response(Answer(join_output(whole), 200, asked.writer.content_type, headers))

    async def _answer_apart(
        self, request: web.Request, asked: Ask, entry: AccessLogEntry, stores: BeforeEnd
    ) -> web.StreamResponse | None:
        """The answer if it is made independently of the connection; otherwise None."""
        asked, door = asked.unpack(), request[DOOR]
        keeping = read_keeping(request, asked, entry.key, stores)
        background = plan_apart(asked, keeping, door.mount.door, self._streams, stores=door.call.stores)
        if background is None:
            return None
        try:
            log = await self._jobs.put(asked, background, entry)
        except UNMADE:
            if background.optional:
                return None
            raise
        writer = None if asked.streaming or background is asked.background else asked.writer
        # A prompt may be long, and an answer may take minutes.
        del asked
        answer = background.answer(self._jobs.store.of(entry.key, bounded=log is None, log=log))
        try:
            return await self._reply(request, await _read_whole(answer, writer) if writer else answer)
        finally:
            if log is not None and background.joins is not None and not background.chosen:
                self._jobs.leave(background.name, log.claim)

    async def _parse(
        self, request: web.Request, reader: BodyReader, entry: AccessLogEntry
    ) -> Ask | Answer | StreamedAnswer:
        dialect, call, route = request[DOOR].mount.dialect, request[DOOR].call, None
        self._relay.reading += 1
        try:
            dialect.check_head(call)
            body = await reader.read(request)
            while True:
                call.body = body
                costly = not dialect.parses_here and len(body) > MAX_QUICK_BYTES and is_costly(body)
                parsed = self._parser.parse(dialect, call) if costly else dialect.parse(call)
                if isinstance(parsed, Awaitable):
                    call.kept, call.live, call.streams = self._jobs.store.of(entry.key), self._live, self._streams
                    call.batches = self._batches(entry.key)
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
                    if IDEMPOTENCY_HEADER in request.headers or call.attaches or route.attach:
                        call.digest = await digest_request(request.path, body)
                    return asked
                # Parse the request again: the dialect has parsed it before any processor had announced the model's
                # features.
        finally:
            if found := route or call.route:
                entry.flow, entry.service = found.flow, found.spec.name
            self._relay.note_read()

    async def _reply(self, request: web.Request, answer: Answer | StreamedAnswer) -> web.StreamResponse:
        """Send an answer that needs no service; a streamed one fails as in `_stream`."""
        if isinstance(answer, Answer):
            return make_response(answer)
        with self._open(request, answer, {}) as body:
            try:
                if request.method == "HEAD":
                    await answer.parts.aclose()
                    body.send_head()
                else:
                    await send_parts(answer.parts, body)
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

    async def _stream(
        self,
        request: web.Request,
        exchange: Exchange,
        writer: Writer[Any],
        before_end: BeforeEnd,
        more_headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Relay the answer. Raises errors that come before its first byte, for the caller to answer with a status."""
        with self._open(request, writer, {"X-Stream-Id": exchange.responses.id, **more_headers}) as body:
            del more_headers
            try:
                await exchange.relay(writer, body, before_end)
            except TgError as error:
                if not body.started:
                    raise
                body.fail(error)
            # There may be many last bytes, written after the relay has ended.
            if body.full:
                await body.drain()
        return body


async def _read_whole(answer: Answer | StreamedAnswer, writer: Writer[Any]) -> Answer:
    """Collect an answer that comes in parts, because its writer knows the headers only at the end."""
    if isinstance(answer, Answer):
        return answer
    async with aclosing(answer.parts) as parts:
        whole = b"".join([part async for part in parts])
    return Answer(whole, 200, answer.content_type, {**answer.headers, **writer.headers})
