"""HTTP request -> mount -> dialect: finds the dialect that parses a request, or in whose shape it is refused."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from tg_gateway.dialects import Call, Catalogue, Dialect, Mount

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door(msgspec.Struct, frozen=True):
    """The mount and the dialect of a request.

    Attributes:
        dialect: writes the request's refusals.
        mount: None if no mount has this path and method.
        call: the request as the dialect reads it.
    """

    dialect: Dialect
    mount: Mount | None
    call: Call


DOOR: Final = web.RequestKey("door", Door)
"""Key under which a handler finds the `Door` of its request."""


class Router:
    """The table of mounts.

    Args:
        mounts: the table.
        catalogue: the services and models that can be asked.
    """

    def __init__(self, mounts: Sequence[Mount], catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._rows: dict[tuple[str, str], list[Mount]] = {}
        for mount in mounts:
            self._rows.setdefault((mount.method, mount.path), []).append(mount)
        self._segments = [(mount, mount.path.strip("/").split("/")) for mount in mounts]

    def routes(self, http: Handler, socket: Handler) -> list[web.RouteDef]:
        """Each method and path once. GET serves HEAD too, unless HEAD has its own row or all GET rows are sockets."""

        async def choose(request: web.Request) -> web.StreamResponse:
            mount = request[DOOR].mount
            return await (socket if mount is not None and mount.socket else http)(request)

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

    def find(self, request: web.Request, request_id: str) -> Door:
        """The `Door` of a request, whose path the server has matched already."""
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else ""
        rows = self._rows.get((request.method, path)) or (
            self._rows.get(("GET", path)) if request.method == "HEAD" else None
        )
        mount = None if rows is None else rows[0] if len(rows) == 1 else _choose(rows, request.headers)
        dialect = self._nearest(request.path) if mount is None else mount.dialect
        operation = "" if mount is None else mount.operation
        call = Call(operation, self._catalogue, request.headers, request.match_info, request.query, request_id)
        return Door(dialect, mount, call)

    def find_nearest(self, path: str, request_id: str) -> Door:
        """The `Door` of a request that no mount can read."""
        rows = self._rows.get(("GET", path)) or self._rows.get(("POST", path))
        dialect = _choose(rows, {}).dialect if rows else self._nearest(path)
        return Door(dialect, None, Call("", self._catalogue, {}, {}, {}, request_id))

    def _nearest(self, path: str) -> Dialect:
        # An unknown path is refused in the shape of the protocol whose paths resemble it most: its client can
        # read that.
        segments = path.strip("/").split("/")
        row = max(self._segments, key=lambda row: (_count_common(row[1], segments), row[0].dialect.precedence))
        return row[0].dialect


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
