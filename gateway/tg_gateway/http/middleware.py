"""HTTP request -> handler -> answer: who may come in, every error in the shape of its mount, one log line."""

import asyncio
import math
import re
import uuid
from dataclasses import replace
from typing import Final

import structlog
from aiohttp import web

from tg_base.telemetry import trace
from tg_gateway.access import Authenticator, Limits, UnauthenticatedLimit, find_token
from tg_gateway.dialects import Answer
from tg_gateway.http.router import DOOR, Door, Handler, Router
from tg_gateway.relay import DEFECT_MESSAGE
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import BadRequest, Cancelled, Internal, NotFound, TooLarge, Unauthorized

log = structlog.get_logger()

ENTRY: Final = web.RequestKey("line", AccessLogEntry)
"""Where a handler finds the request's line in the log."""
OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""Paths without a token beside the mounts that are `keyless`: what an orchestrator asks."""

_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_KINDS: Final[dict[int, type[TgError]]] = {403: Unauthorized, 404: NotFound, 413: TooLarge, 500: Internal}
_MESSAGES: Final = {404: "no such path", 405: "this path does not take the method {method}"}


class Middleware:
    """The outermost middleware.

    Args:
        authenticator: the check.
        unauthenticated: who has not passed it yet.
        router: whose request it is.
        limits: how long a client may take to read its answer.
    """

    def __init__(
        self, authenticator: Authenticator, unauthenticated: UnauthenticatedLimit, router: Router, limits: Limits
    ) -> None:
        self._router = router
        self._authenticator = authenticator
        self._unauthenticated = unauthenticated
        self._limits = limits

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check, handle, answer, log."""
        entry = request[ENTRY] = AccessLogEntry("http", _request_id(request.headers.get("X-Request-Id")))
        entry.traceparent = request.headers.get("traceparent")
        request[DOOR] = self._router.find(request, entry.request)
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
            response = _refuse(request[DOOR], error, error.status)
            entry.end(error.status, error.type)
        except web.HTTPException as error:
            response = _refuse_http(request[DOOR], error, request.method)
            entry.end(error.status, "http")
        except Exception as unexpected:  # noqa: BLE001 - a defect is logged, and answered as one
            ending = judge_defect(request, unexpected)
            response = _refuse(request[DOOR], ending, ending.status)
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
        mount = request[DOOR].mount
        if request.path not in OPEN_PATHS and not (mount and mount.keyless):
            entry.key = self._authenticator.check(find_token(request.headers), request.remote or "").name
            if self._authenticator.required:
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


def make_response(answer: Answer) -> web.Response:
    """A dialect's answer as the server sends it."""
    headers = {**answer.headers, "Content-Type": answer.content_type}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _refuse(door: Door, error: TgError, status: int) -> web.Response:
    """In the dialect's shape, with the headers that HTTP has for it."""
    answer = door.dialect.refuse(error, status, door.call)
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Bearer"
    return make_response(replace(answer, headers={**headers, **answer.headers}))


def _refuse_http(door: Door, error: web.HTTPException, method: str) -> web.Response:
    """The server's own refusals: no such path, method not allowed."""
    known = _MESSAGES.get(error.status)
    message = known.format(method=method) if known else error.text or error.reason
    kind = _KINDS.get(error.status, BadRequest)
    response = _refuse(door, kind(message), error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def judge_defect(request: web.Request, unexpected: Exception) -> TgError:
    """The error that a request ends with after an exception that nobody expected; a defect is logged."""
    if _has_left(request, unexpected):
        return Cancelled("the client left")
    log.error("gateway.defect", exc_info=unexpected)
    return Internal(DEFECT_MESSAGE)


def _has_left(request: web.Request, error: Exception) -> bool:
    """Whether it failed because its client has gone, as where a handshake is reset: that is no defect."""
    gone = request.transport is None or request.transport.is_closing()
    return gone and isinstance(error, ConnectionError)


def _request_id(given: str | None) -> str:
    return given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
