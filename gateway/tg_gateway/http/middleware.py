"""HTTP request -> mount -> handler -> answer: admission, errors in the shape of its protocol, one line of the log."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from types import TracebackType
from typing import Final

import msgspec
import structlog
from aiohttp import web
from typing_extensions import override

from tg_base.runtime import SharedListener, translate_defects
from tg_base.telemetry import new_id, trace
from tg_gateway.access import (
    ALLOW_ORIGIN,
    ANYBODY,
    Authenticator,
    Limits,
    Origins,
    Principal,
    UnauthenticatedLimit,
    find_token,
    preflight_headers,
)
from tg_gateway.dialects import MAX_WRITE_BYTES, Answer, Call, Catalogue, Mount, format_retry_after
from tg_gateway.http.sliced_body import SlicedBody
from tg_gateway.http.unreadable_head import UnreadableHead
from tg_gateway.relay import DEFECT_MESSAGE
from tg_gateway.telemetry import AccessLogEntry, write_in_time
from tg_schema import TgError
from tg_schema.errors import BadRequest, Cancelled, Internal, NotFound, TooLarge, Unauthorized

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ENTRY: Final = web.RequestKey("line", AccessLogEntry)
"""Key under which a handler finds the request's line of the access log."""
CLOSES: Final = web.RequestKey("closes", bool)
"""Set on a request after which its connection closes, even if the client wants to keep it."""
PRINCIPAL: Final = web.RequestKey("principal", Principal)
"""The key under which the middleware stores a function for handlers that finds the owner of the head's token, if tokens
are required."""
CORS_HEADERS: Final = web.RequestKey("cors", dict[str, str])
"""Key under which a handler finds the CORS headers of the answer."""
OPEN_PATHS: Final = frozenset(
    {"/health", "/ready", "/openapi.json", "/docs", "/docs/", "/docs/page.js", "/docs/page.css"}
)
"""Paths that need no token, besides the `keyless` mounts: the probes; and the documentation, which reveals nothing of
this gateway's models or users, and which a browser loads before anybody can type a key."""
_MONITORED_PATHS: Final = frozenset({"/health", "/ready", "/metrics"})
"""Paths that orchestrators, scrapers and pickers poll often, besides the `keyless` mounts."""

_DEFECTS: Final = translate_defects(Internal, DEFECT_MESSAGE, "gateway.defect", log, known=(web.HTTPException,))
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_KINDS: Final[dict[int, type[TgError]]] = {403: Unauthorized, 404: NotFound, 413: TooLarge, 500: Internal}
_STRANGE_PAGE: Final = (
    "pages of another origin may not use this gateway: add the page's origin to gateway.origins, or, if the page is "
    "the gateway's own, the gateway's name to gateway.hosts"
)
_STRANGE_HOST: Final = (
    "the request's Host is no name of this gateway: ask by its address, or add the name to the configuration's "
    "gateway.hosts"
)
_MORE_DOORS: Final = (
    "" if find_spec("tg_doors") else '; for those of LMTP, LMI, TGI and MLC-LLM: pip install "tokengrid-serve[doors]"'
)
_MESSAGES: Final = {
    404: "no such path: check the base URL; GET /openapi.json lists all paths" + _MORE_DOORS,
    405: "this path does not take the method {method}",
}


class Door(msgspec.Struct, frozen=True):
    """The mount of a request.

    Attributes:
        mount: its dialect writes the request's refusals. It has no path if no mount of the table has the path of the
            request.
        call: the request as the dialect reads it.
    """

    mount: Mount
    call: Call


DOOR: Final = web.RequestKey("door", Door)
"""Key under which a handler finds the `Door` of its request."""


class Router:
    """The table of mounts.

    Args:
        mounts: the table.
        catalogue: the services and models that can be asked.

    Attributes:
        catalogue: the current catalogue; an edit of the file replaces it, and each request keeps the one of its
            arrival.
    """

    def __init__(self, mounts: Sequence[Mount], catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._rows: dict[tuple[str, str], list[Mount]] = {}
        for mount in mounts:
            self._rows.setdefault((mount.method, mount.path), []).append(mount)
        self._segments = [(mount, mount.path.strip("/").split("/")) for mount in mounts if not mount.guest]

    def routes(self, http: Handler, socket: Handler) -> list[web.RouteDef]:
        """Each method and path once. GET serves HEAD too, unless HEAD has its own row or all GET rows are sockets."""

        async def choose(request: web.Request) -> web.StreamResponse:
            return await (socket if request[DOOR].mount.socket else http)(request)

        # Most paths have a single row, and need no coroutine to choose one, which would last as long as the answer.
        handlers = {(True, False): socket, (False, True): http, (True, True): choose}
        return [
            self._route(method, path, handlers[any(row.socket for row in rows), any(not row.socket for row in rows)])
            for (method, path), rows in self._rows.items()
        ]

    def _route(self, method: str, path: str, answer: Handler) -> web.RouteDef:
        if method == "GET":
            # A handshake is a GET (RFC 6455, section 4.1).
            headed = ("HEAD", path) not in self._rows and not all(row.socket for row in self._rows[method, path])
            return web.get(path, answer, allow_head=headed, expect_handler=defer_expectation)
        return web.route(method, path, answer, expect_handler=defer_expectation)

    def find(self, request: web.Request) -> Door:
        """The `Door` of a request, whose path the server has matched already. Its call still lacks its `request_id`."""
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else ""
        rows = self._rows.get((request.method, path)) or (
            self._rows.get(("GET", path)) if request.method == "HEAD" else None
        )
        if not rows:
            mount = self._make_nearest(request.path)
        else:
            mount = rows[0] if len(rows) == 1 else _choose(rows, request.headers)
        call = Call(mount.operation, self.catalogue, request.headers, request.match_info, request.query, "")
        return Door(mount, call)

    def find_nearest(self, path: str, request_id: str) -> Door:
        """The `Door` of a request that no mount can read."""
        rows = self._rows.get(("GET", path)) or self._rows.get(("POST", path))
        mount = _choose(rows, {}) if rows else self._make_nearest(path)
        return Door(mount, Call("", self.catalogue, {}, {}, {}, request_id))

    def _make_nearest(self, path: str) -> Mount:
        """A mount that refuses an unknown path in the shape of the protocol whose paths resemble it most."""
        segments = path.strip("/").split("/")
        row = max(self._segments, key=lambda row: (_count_common(row[1], segments), row[0].dialect.precedence))
        return Mount("", "", row[0].dialect, "")


class Middleware:
    """The outermost middleware.

    Args:
        authenticator: checks tokens.
        origins: checks requests that browsers send for pages.
        unauthenticated: counts the connections that have not shown a right token yet.
        router: finds each request's mount and dialect.
        limits: how long a client may take to read its answer.
        shared: listening sockets that other processes share; says when connections must close after their next answer.
        shown: paths whose key needs `admin = true`: they show what all keys ask.
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
        shown: Collection[str],
    ) -> None:
        self._router = router
        self._shared = shared
        self._origins = origins
        self._authenticator = authenticator
        self._unauthenticated = unauthenticated
        self._limits = limits
        self._shown = shown

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check, handle, answer, log."""
        given = request.headers.get("X-Request-Id")
        door = request[DOOR] = self._router.find(request)
        door.call.request_id = request_id = given if given and _REQUEST_ID.fullmatch(given) else new_id()
        entry = request[ENTRY] = AccessLogEntry("http", request_id)
        entry.traceparent = request.headers.get("traceparent")
        entry.span = trace.Span.at_door(request_id, entry.traceparent, door.mount.door or None)
        trace.enter(entry.span)
        if entry.span.began:
            entry.name = f"{request.method} {door.mount.path}".rstrip()
        origin, host = request.headers.get("Origin"), request.headers.get("Host")
        request[CORS_HEADERS] = self._origins.headers(origin)
        probed = door.mount.keyless and not door.mount.socket
        entry.routine = request.method in {"GET", "HEAD"} and (probed or request.path in _MONITORED_PATHS)
        request[CLOSES] = self._shared.handing_over
        try:
            try:
                with DefectJudge(request):
                    if not self._origins.admits(origin, host, keyed=self._authenticator.required):
                        raise web.HTTPForbidden(text=_STRANGE_HOST if origin is None else _STRANGE_PAGE)
                    preflight = self._answer_preflight(request) if request.method == "OPTIONS" else None
                    if preflight is None:
                        self._check_key(request, door, entry)
                    response = preflight or await handler(request)
            except TgError as error:
                response = _refuse(door, error, error.status)
                entry.end(response.status, error.type)
            except web.HTTPException as error:
                response = _refuse_http(door, error, request.method)
                entry.end(response.status, "http")
            else:
                if not entry.outcome:
                    entry.end(response.status, "ok")
            await self._send(request, response, entry)
        finally:
            # Write the line for a client that has left, too: the server cancels its handler then.
            entry.write()
        return response

    def refuse_unreadable(self, head: UnreadableHead) -> web.Response:
        """Refuse without a line in the access log: anybody can send such bytes, and a metric counts them already."""
        request_id = new_id()
        response = _refuse_http(self._router.find_nearest(head.path, request_id), head.refusal, "")
        # Keep HTTP's own status: a dialect may use another one for invalid requests.
        response.set_status(head.refusal.status)
        response.headers.update({"X-Request-Id": request_id, "Connection": "close"})
        response.force_close()
        return response

    def _answer_preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser's preflight request, which never has a key."""
        headers = preflight_headers(request.headers)
        if headers is None or ALLOW_ORIGIN not in request[CORS_HEADERS]:
            return None
        request[ENTRY].end(204, "ok")
        return web.Response(status=204, headers=headers)

    def _check_key(self, request: web.Request, door: Door, entry: AccessLogEntry) -> None:
        keyless = request.path in OPEN_PATHS or door.mount.keyless
        # The key of a socket may come in a message instead.
        if keyless and not (door.mount.socket and find_token(request.headers)):
            return
        if not self._authenticator.required:
            entry.key = ANYBODY.name
        else:
            principal = self._authenticator.check(find_token(request.headers), request.remote or "")
            request[PRINCIPAL], entry.key = principal, principal.name
            self._unauthenticated.forget(request.transport)
            if request.path in self._shown:
                self._authenticator.rights.check_admin(entry.key)
        rights = self._authenticator.rights
        door.call.stores = entry.key in rights.storing
        door.call.attaches = entry.key in rights.attaching
        door.call.sees = None if not self._authenticator.required or entry.key in rights.admins else entry.key

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
            # A sliced body has a deadline for each slice instead.
            response.body, patience = SlicedBody(response.body, self._limits.write), None
        await write_in_time(request, response, patience)


async def defer_expectation(request: web.Request) -> None:
    """The server calls this for `Expect`, before any check. Does nothing: `BodyReader` answers it later."""


def _choose(rows: Sequence[Mount], headers: Mapping[str, str]) -> Mount:
    for mount in rows:
        if mount.header and mount.header in headers:
            return mount
        if mount.accept and mount.accept in headers.get("Accept", ""):
            return mount
    return next((mount for mount in rows if not (mount.header or mount.accept)), rows[0])


def _count_common(mounted: Sequence[str], asked: Sequence[str]) -> tuple[int, bool]:
    """The number of leading segments that agree, and whether all segments do."""
    common = 0
    for ours, theirs in zip(mounted, asked, strict=False):
        if ours != theirs and not ours.startswith("{"):
            break
        common += bool(theirs)
    return common, common == len(mounted) == len(asked)


def make_response(answer: Answer) -> web.Response:
    """A dialect's answer as the server sends it."""
    headers = {**answer.headers, "Content-Type": answer.content_type}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _refuse(door: Door, error: TgError, status: int) -> web.Response:
    """Refuse in the dialect's shape, with the matching HTTP headers."""
    answer = door.mount.dialect.refuse(error, status, door.call)
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = format_retry_after(error.retry_after)
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Bearer"
    return make_response(replace(answer, headers={**headers, **answer.headers}))


def _refuse_http(door: Door, error: web.HTTPException, method: str) -> web.Response:
    """Translate the server's own refusals: no such path, method not allowed."""
    known = _MESSAGES.get(error.status)
    message = known.format(method=method) if known else error.text or error.reason
    kind = _KINDS.get(error.status, BadRequest)
    response = _refuse(door, kind(message), error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


class DefectJudge(AbstractContextManager[object]):
    """Raises Internal in place of an unexpected exception of its block, and logs the traceback.

    If the client has gone, for instance by resetting a handshake, it raises Cancelled: that is no defect.

    Args:
        request: the client's.
    """

    __slots__ = ("_request",)

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request

    @override
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # A connection that the client has reset is not a defect. If the client is still there, the error is ours.
        if isinstance(error, ConnectionError) and (
            self._request.transport is None or self._request.transport.is_closing()
        ):
            raise Cancelled("the client left") from None
        _DEFECTS.__exit__(kind, error, tb)
