"""HTTP request -> handler -> answer: who may come in, one JSON shape for every error, one log line."""

import asyncio
import math
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiohttp import web

from tg_base.telemetry import trace
from tg_gateway.access import Authenticator, Limits, UnauthenticatedLimit, bearer
from tg_gateway.dialects import refusal
from tg_gateway.relay import DEFECT_MESSAGE
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BadRequest, Cancelled, Internal, NotFound, TooLarge, Unauthorized

log = structlog.get_logger()

ENTRY: Final = web.RequestKey("line", AccessLogEntry)
"""Where a handler finds the request's line in the log."""
OPEN_PATHS: Final = frozenset({"/health", "/ready", "/api/v1/socket"})
"""Paths without a token: what an orchestrator asks, and the socket, which has its own frame for it."""

_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_KINDS: Final[dict[int, type[TgError]]] = {403: Unauthorized, 404: NotFound, 413: TooLarge, 500: Internal}
_MESSAGES: Final = {404: "no such path", 405: "this path does not take the method {method}"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Middleware:
    """The outermost middleware.

    Args:
        authenticator: the check.
        unauthenticated: who has not passed it yet.
        limits: how long a client may take to read its answer.
    """

    def __init__(self, authenticator: Authenticator, unauthenticated: UnauthenticatedLimit, limits: Limits) -> None:
        self._authenticator = authenticator
        self._unauthenticated = unauthenticated
        self._limits = limits

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check, handle, answer, log."""
        entry = request[ENTRY] = AccessLogEntry("http", _request_id(request.headers.get("X-Request-Id")))
        entry.traceparent = request.headers.get("traceparent")
        trace.enter(trace.Span.at_door(entry.request, entry.traceparent))
        try:
            response = await self._answer(request, handler, entry)
            await self._send(request, response, entry)
        finally:
            entry.write()
        return response

    async def _answer(self, request: web.Request, handler: Handler, entry: AccessLogEntry) -> web.StreamResponse:
        try:
            self._check(request, entry)
            response = await handler(request)
        except TgError as error:
            response = make_error_response(error)
            entry.end(error.status, error.type)
        except web.HTTPException as error:
            response = _spoken(error, request.method)
            entry.end(error.status, "http")
        except Exception as unexpected:
            ending = Cancelled("the client left") if _has_left(request, unexpected) else Internal(DEFECT_MESSAGE)
            if isinstance(ending, Internal):
                log.exception("gateway.defect")
            response = make_error_response(ending)
            entry.end(ending.status, ending.type)
        else:
            if not entry.outcome:
                entry.end(response.status, "ok")
        return response

    def _check(self, request: web.Request, entry: AccessLogEntry) -> None:
        if not self._authenticator.admits(request.headers.get("Origin"), request.headers.get("Host")):
            raise web.HTTPForbidden(
                text="pages of another origin may not use this gateway; "
                "where it is called by a name of its own, that stands in the configuration's gateway.hosts"
            )
        if request.path not in OPEN_PATHS:
            token = bearer(request.headers.get("Authorization"))
            entry.key = self._authenticator.check(token, request.remote or "").name
            self._unauthenticated.forget(request.transport)

    async def _send(self, request: web.Request, response: web.StreamResponse, entry: AccessLogEntry) -> None:
        """Write a plain answer here, so that a client which does not read it is cut off in time."""
        if not isinstance(response, web.Response):
            return
        response.headers["X-Request-Id"] = entry.request
        try:
            async with asyncio.timeout(self._limits.write):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()


def make_error_response(error: TgError) -> web.Response:
    """The answer with the error's own status."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(status=error.status, body=refusal(error), content_type="application/json", headers=headers)


def _spoken(error: web.HTTPException, method: str) -> web.Response:
    """The server's own refusals (no such path, method not allowed) in our shape."""
    known = _MESSAGES.get(error.status)
    message = known.format(method=method) if known else error.text or error.reason
    kind = _KINDS.get(error.status, BadRequest)
    response = web.Response(status=error.status, body=refusal(kind(message)), content_type="application/json")
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _has_left(request: web.Request, error: Exception) -> bool:
    """Whether it failed because its client has gone, as where a handshake is reset: that is no defect."""
    gone = request.transport is None or request.transport.is_closing()
    return gone and isinstance(error, ConnectionError)


def _request_id(given: str | None) -> str:
    return given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
