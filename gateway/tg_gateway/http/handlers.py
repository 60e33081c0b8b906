"""HTTP door: one request in, one body or a stream of bytes out, in the protocol of its mount."""

from aiohttp import web

from tg_base.config import GatewayConfig
from tg_gateway.access import Limits
from tg_gateway.dialects import Answer, Ask
from tg_gateway.http.body_reader import BodyReader
from tg_gateway.http.body_stream import BodyStream
from tg_gateway.http.middleware import ENTRY, judge_defect, make_response
from tg_gateway.http.router import DOOR, Door
from tg_gateway.relay import Exchange, Relay
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError


class HttpHandlers:
    """What answers on every mount that is no socket."""

    def __init__(self, relay: Relay, config: GatewayConfig, limits: Limits) -> None:
        self._relay = relay
        self._config = config
        self._limits = limits
        self._body_reader = BodyReader(config.body_limit, limits)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Read, ask, and write the answer; an error before its first byte is the caller's to answer."""
        door, entry = request[DOOR], request[ENTRY]
        asked = await self._parse(request, door, entry)
        if isinstance(asked, Answer):
            return make_response(asked)
        async with self._relay.ask(asked.route, asked.request, entry) as exchange:
            if asked.streaming:
                return await self._stream(request, asked, exchange)
            body = await exchange.whole(asked.writer)
        headers = {"X-Stream-Id": exchange.responses.id, **asked.writer.headers}
        return make_response(Answer(body, 200, asked.writer.content_type, headers))

    async def _parse(self, request: web.Request, door: Door, entry: AccessLogEntry) -> Ask | Answer:
        route = None
        try:
            door.dialect.check_head(door.call)
            door.call.body = await self._body_reader.read(request)
            asked = door.dialect.parse(door.call)
            route = asked.route if isinstance(asked, Ask) else None
        finally:
            if known := route or door.call.route:
                entry.flow, entry.service = known.flow, known.spec.name
        return asked

    async def _stream(self, request: web.Request, asked: Ask, exchange: Exchange) -> web.StreamResponse:
        """Relay; an error before the first byte is the caller's to answer with a real status.

        A defect after it cuts the connection: the body has no proper end then.
        """
        entry = request[ENTRY]
        entry.door = "sse"
        headers = {"X-Request-Id": entry.request, "X-Stream-Id": exchange.responses.id}
        with BodyStream(request, asked.writer, headers, self._config.keep_alive, self._limits.write) as body:
            try:
                await self._relay_to(body, asked, exchange, entry)
            except Exception as unexpected:
                if not body.started:
                    raise
                # A status line of the middleware's would be read as a part of this body.
                entry.end(200, judge_defect(request, unexpected).type)
                body.abort()
        return body

    async def _relay_to(self, body: BodyStream, asked: Ask, exchange: Exchange, entry: AccessLogEntry) -> None:
        try:
            await exchange.relay(asked.writer, body)
        except TgError as error:
            if not body.started:
                raise
            entry.end(200, error.type)
            body.fail(error)
