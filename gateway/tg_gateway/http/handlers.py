"""HTTP door: one JSON in, one JSON or a stream of events out."""

import asyncio

from aiohttp import web

from tg_base.config import GatewayConfig
from tg_gateway.access import Limits
from tg_gateway.dialects import DIALECTS
from tg_gateway.http.event_stream import EventStream
from tg_gateway.http.middleware import ENTRY, Handler
from tg_gateway.relay import DEFAULT_FLOW, Endpoints, Exchange, Relay
from tg_schema import TgError
from tg_schema.errors import BadRequest, TooLarge


class HttpHandlers:
    """The REST paths of every service."""

    def __init__(self, directory: Endpoints, relay: Relay, config: GatewayConfig, limits: Limits) -> None:
        self._directory = directory
        self._relay = relay
        self._config = config
        self._limits = limits

    def routes(self) -> list[web.RouteDef]:
        """The short paths (seed) and the predecessor's, which name the flow."""
        short = [web.post(f"/api/v1/{service}", self._short(service)) for service in DIALECTS]
        return [*short, web.post("/api/v1/flow/{flow}/service/{service}", self._long)]

    def _short(self, service: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._ask(request, DEFAULT_FLOW, service)

        return handle

    async def _long(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, request.match_info["flow"], request.match_info["service"])

    async def _ask(self, request: web.Request, flow: str, service: str) -> web.StreamResponse:
        endpoint, entry = self._directory.find(flow, service), request[ENTRY]
        entry.flow, entry.service = flow, service
        asked = endpoint.dialect.parse(await self._body(request))
        async with self._relay.ask(endpoint, asked, entry) as exchange:
            if asked.streaming:
                return await self._stream(request, exchange)
            body = await exchange.whole()
        headers = {"X-Stream-Id": exchange.responses.id}
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _stream(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """Relay events; an error before the first byte is the caller's to answer with a real status."""
        entry = request[ENTRY]
        entry.door = "sse"
        headers = {"X-Request-Id": entry.request, "X-Stream-Id": exchange.responses.id}
        with EventStream(request, headers, self._config.keep_alive, self._limits.write) as events:
            try:
                await exchange.relay(events)
            except TgError as error:
                if not events.started:
                    raise
                entry.end(200, error.type)
                events.send(exchange.endpoint.dialect.failure(error), last=True)
        return events

    async def _body(self, request: web.Request) -> bytes:
        limit = self._config.body_limit
        too_large = TooLarge(f"the body may have at most {limit} bytes")
        if (request.content_length or 0) > limit:
            raise too_large
        try:
            async with asyncio.timeout(self._limits.body):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        except web.RequestPayloadError:
            raise BadRequest("the body's transfer or content encoding is broken") from None
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come within {self._limits.body:g} s") from None
