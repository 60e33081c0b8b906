"""Metrics, pages of installed packages and probes -> operator, on a port of their own."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from tg_base.config import GatewayConfig
from tg_base.runtime import explain_no_listening
from tg_gateway.access import Origins
from tg_gateway.http import Handler, answer_health, find_pages, make_ready
from tg_gateway.http_connections import ConnectionEvents, ConnectionRunner
from tg_gateway.telemetry import FreshAnswer, MetricsPage, write_in_time
from tg_schema.errors import Unavailable

MAX_CONNECTIONS = 32
"""Beyond it the oldest connection is cut: a scrape is short, and one that hangs may not keep others out."""
HEAD_SECONDS = 10.0
"""Seconds in which a connection must send its first request, and each further one."""
WRITE_SECONDS = 10.0
"""Seconds in which the client must have read the page."""
FRESH_SECONDS = 0.1
"""Seconds for which a page is reused, since anybody may ask: rendering takes milliseconds of the event loop."""
READY_FRESH_SECONDS = 0.5
"""Seconds for which an answer to `/ready` is reused, since it may need a question to the bus."""
_STRANGE: Final = (
    "the request's Host or Origin is no name of this process: ask by its address, or add the name to hosts in the "
    "configuration"
)
_SERVER_LOG: Final = logging.getLogger("tg_gateway.metrics_page")
# A stranger's bytes are no defect, but would log a traceback for each connection.
_SERVER_LOG.setLevel(logging.CRITICAL)


@asynccontextmanager
async def metrics_page(
    host: str,
    port: int,
    sockets: Sequence[socket.socket] = (),
    *,
    find_hosts: Callable[[], tuple[str, ...]],
    find_missing: Callable[[], Awaitable[tuple[str, ...]]],
) -> AsyncIterator[int]:
    """Serve this process's metrics at `http://host:port/metrics` on its event loop, while the block runs.

    It also serves the pages of installed packages, `/health` and `/live`, which are 200 while it runs, and `/ready`.
    Yields the port, which may have been given as 0 = any free one.

    Args:
        host: the address to listen on.
        port: the port on that host.
        sockets: listening sockets in place of `host` and `port`, if there are any.
        find_hosts: the names that a request's `Host` may have besides `host`, loopback names and addresses, as `hosts`
            of a gateway.
        find_missing: finds what the process lacks to be ready; if nothing, `/ready` is 200.

    Raises:
        Unavailable: the port cannot be listened on.
    """
    missing = FreshAnswer(find_missing, READY_FRESH_SECONDS)

    async def answer_ready(request: web.Request) -> web.Response:
        return make_ready(await missing.get())

    shown: dict[str, Handler] = {
        "/metrics": MetricsPage(FRESH_SECONDS).show,
        **{page.path: page().show for page in find_pages()},
        "/health": answer_health,
        "/live": answer_health,
        "/ready": answer_ready,
    }
    application = web.Application(middlewares=[_admitting(host, find_hosts)])
    application.add_routes([web.get(path, show) for path, show in shown.items()])
    connections = _Connections()
    runner = ConnectionRunner(
        application,
        ConnectionEvents(connections.opened, connections.closed),
        # Nobody reads a body here, so nothing is inflated either.
        auto_decompress=False,
        access_log=None,
        logger=_SERVER_LOG,
        keepalive_timeout=HEAD_SECONDS,
        shutdown_timeout=0.5,
    )
    await runner.setup()
    try:
        try:
            given: list[web.BaseSite] = [web.SockSite(runner, each) for each in sockets]
            for site in given or [web.TCPSite(runner, host, port)]:
                await site.start()
        except (OSError, ValueError) as error:
            reason = explain_no_listening(error, "take another port")
            raise Unavailable(f"metrics cannot be shown on port {port} of {host}: {reason}") from None
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _admitting(own: str, find_hosts: Callable[[], tuple[str, ...]]) -> Middleware:
    """Refuses requests that a page of another host makes in a browser, and cuts off a client that does not read."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        origins = Origins(GatewayConfig(host=own, hosts=find_hosts()))
        if not origins.admits(request.headers.get("Origin"), request.headers.get("Host"), keyed=False):
            raise web.HTTPForbidden(text=_STRANGE)
        response = await handler(request)
        await write_in_time(request, response, WRITE_SECONDS)
        return response

    return admit


class _Connections:
    """The open connections, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Transport, None] = {}

    def opened(self, transport: asyncio.Transport) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[transport] = None

    def closed(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)
