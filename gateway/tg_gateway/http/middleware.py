"""HTTP request -> handler -> answer: who may come in, every error in the shape of its mount, one log line."""

import re
from dataclasses import replace
from types import TracebackType
from typing import Final

import structlog
from aiohttp import web

from tg_base.runtime import SharedListener, translate_defects
from tg_base.telemetry import new_id, trace
from tg_gateway.access import (
    ALLOW_ORIGIN,
    ANYBODY,
    Authenticator,
    Limits,
    Origins,
    UnauthenticatedLimit,
    find_token,
    preflight_headers,
)
from tg_gateway.dialects import Answer, format_retry_after
from tg_gateway.dialects.output import MAX_WRITE_BYTES
from tg_gateway.http.body_stream import CLOSES
from tg_gateway.http.router import DOOR, Door, Handler, Router
from tg_gateway.http.sliced_body import SlicedBody
from tg_gateway.relay import DEFECT_MESSAGE
from tg_gateway.telemetry import AccessLogEntry, write_in_time
from tg_schema import TgError
from tg_schema.errors import BadRequest, Cancelled, Internal, NotFound, TooLarge, Unauthorized

log = structlog.get_logger()

ENTRY: Final = web.RequestKey("line", AccessLogEntry)
"""Where a handler finds the request's line in the log."""
CORS_HEADERS: Final = web.RequestKey("cors", dict[str, str])
"""Where a handler finds the headers by which a browser lets a foreign page read the answer."""
OPEN_PATHS: Final = frozenset(
    {"/health", "/ready", "/openapi.json", "/docs", "/docs/", "/docs/page.js", "/docs/page.css"}
)
"""Paths without a token beside the mounts that are `keyless`: what an orchestrator asks, and the documentation, which
tells nothing of this gateway's models or users, and which a browser asks for before anybody can type a key."""
_MONITORED_PATHS: Final = frozenset({"/health", "/ready", "/metrics"})
"""What orchestrators, scrapers and pickers ask for many times a second, beside the mounts that are `keyless`."""

_DEFECTS: Final = translate_defects(Internal, DEFECT_MESSAGE, "gateway.defect", log, known=(web.HTTPException,))
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_KINDS: Final[dict[int, type[TgError]]] = {403: Unauthorized, 404: NotFound, 413: TooLarge, 500: Internal}
_STRANGE_PAGE: Final = (
    "pages of another origin may not use this gateway, except those of the configuration's gateway.origins; where it "
    "is called by a name of its own, that stands in gateway.hosts"
)
_STRANGE_HOST: Final = (
    "the request's Host is no name of this gateway: ask by its address, or add the name to the configuration's "
    "gateway.hosts"
)
_MESSAGES: Final = {
    404: "no such path: check the base URL; GET /openapi.json lists all paths",
    405: "this path does not take the method {method}",
}


class Middleware:
    """The outermost middleware.

    Args:
        authenticator: the check of tokens.
        origins: the check of what pages send.
        unauthenticated: who has not passed it yet.
        router: whose request it is.
        limits: how long a client may take to read its answer.
        shared: says when each connection closes after its next answer.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        origins: Origins,
        unauthenticated: UnauthenticatedLimit,
        router: Router,
        limits: Limits,
        *,
        shared: SharedListener,
    ) -> None:
        self._router = router
        self._shared = shared
        self._origins = origins
        self._authenticator = authenticator
        self._unauthenticated = unauthenticated
        self._limits = limits

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check, handle, answer, log."""
        entry = request[ENTRY] = AccessLogEntry("http", _request_id(request.headers.get("X-Request-Id")))
        entry.traceparent = request.headers.get("traceparent")
        request[CORS_HEADERS] = self._origins.headers(request.headers.get("Origin"))
        request[DOOR] = self._router.find(request, entry.request)
        entry.routine = _is_routine(request)
        request[CLOSES] = self._shared.handing_over
        trace.enter(trace.Span.at_door(entry.request, entry.traceparent))
        try:
            try:
                with DefectJudge(request):
                    response = self._check(request, entry) or await handler(request)
            except TgError as error:
                response = _refuse(request[DOOR], error, error.status)
                entry.end(response.status, error.type)
            except web.HTTPException as error:
                response = _refuse_http(request[DOOR], error, request.method)
                entry.end(response.status, "http")
            else:
                if not entry.outcome:
                    entry.end(response.status, "ok")
            await self._send(request, response, entry)
        finally:
            # Also for a client that left: the server cancels its handler then.
            entry.write()
        return response

    def _check(self, request: web.Request, entry: AccessLogEntry) -> web.StreamResponse | None:
        """The answer to a preflight; None = the handler may answer."""
        self._check_origin(request)
        preflight = self._answer_preflight(request)
        if preflight is None:
            self._check_key(request, entry)
        return preflight

    def _check_origin(self, request: web.Request) -> None:
        origin, host = request.headers.get("Origin"), request.headers.get("Host")
        if not self._origins.admits(origin, host, keyed=self._authenticator.required):
            raise web.HTTPForbidden(text=_STRANGE_HOST if origin is None else _STRANGE_PAGE)

    def _answer_preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks whether a page may ask; it shows no key."""
        headers = preflight_headers(request.headers) if request.method == "OPTIONS" else None
        if headers is None or ALLOW_ORIGIN not in request[CORS_HEADERS]:
            return None
        request[ENTRY].end(204, "ok")
        return web.Response(status=204, headers=headers)

    def _check_key(self, request: web.Request, entry: AccessLogEntry) -> None:
        mount = request[DOOR].mount
        if request.path not in OPEN_PATHS and not (mount and mount.keyless):
            if not self._authenticator.required:
                entry.key = ANYBODY.name
                return
            entry.key = self._authenticator.check(find_token(request.headers), request.remote or "").name
            self._unauthenticated.forget(request.transport)

    async def _send(self, request: web.Request, response: web.StreamResponse, entry: AccessLogEntry) -> None:
        """Write a plain answer here, so that a client which does not read it is cut off in time."""
        if not isinstance(response, web.Response):
            return
        response.headers.update(request[CORS_HEADERS])
        response.headers["X-Request-Id"] = entry.request
        if self._shared.handing_over:
            response.force_close()
        patience: float | None = self._limits.write
        if isinstance(response.body, bytes) and len(response.body) > MAX_WRITE_BYTES:
            # It has a deadline for each slice instead.
            response.body, patience = SlicedBody(response.body, self._limits.write), None
        await write_in_time(request, response, patience)


def _is_routine(request: web.Request) -> bool:
    mount = request[DOOR].mount
    probes = request.path in _MONITORED_PATHS or (mount is not None and mount.keyless and not mount.socket)
    return probes and request.method in {"GET", "HEAD"}


def make_response(answer: Answer) -> web.Response:
    """A dialect's answer as the server sends it."""
    headers = {**answer.headers, "Content-Type": answer.content_type}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _refuse(door: Door, error: TgError, status: int) -> web.Response:
    """In the dialect's shape, with the headers that HTTP has for it."""
    answer = door.dialect.refuse(error, status, door.call)
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = format_retry_after(error.retry_after)
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


class DefectJudge:
    """Raises Internal in place of an exception of its block that nobody expected, whose traceback is logged.

    It is Cancelled if the client has gone, as where a handshake is reset: that is no defect.

    Args:
        request: the client's.
    """

    __slots__ = ("_request",)

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # That a client resets its connection is no defect; where it is still there, the error is ours.
        if isinstance(error, ConnectionError) and (
            self._request.transport is None or self._request.transport.is_closing()
        ):
            raise Cancelled("the client left") from None
        _DEFECTS.__exit__(kind, error, tb)


def _request_id(given: str | None) -> str:
    return given if given and _REQUEST_ID.fullmatch(given) else new_id()
