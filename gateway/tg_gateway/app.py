"""People and programs -> gateway -> bus: the whole gateway, as one object."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import structlog
from aiohttp import web
from typing_extensions import override

from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig
from tg_base.protocol import Route, RoutePlan
from tg_base.runtime import MAX_WAITING_CONNECTIONS, SharedListener, open_listening_sockets, running
from tg_base.telemetry import MODEL_LOADS
from tg_gateway.access import Authenticator, Limits, Origins, Payers, RateLimits, UnauthenticatedLimit
from tg_gateway.dialects import Catalogue, KeptStreams, Mount
from tg_gateway.http import (
    MAX_HEAD_LINE_BYTES,
    MAX_HEADERS,
    Health,
    HttpHandlers,
    Middleware,
    Router,
    UnreadableHead,
    defer_expectation,
    find_pages,
)
from tg_gateway.http_connections import ConnectionEvents, ConnectionRunner, notice_leaving
from tg_gateway.jobs import BatchLines, BatchRuns, JobLogs, JobQueue, JobRequests, JobRuns, JobStore
from tg_gateway.mounts import load_mounts
from tg_gateway.openapi import Documentation
from tg_gateway.parsing import CallParser
from tg_gateway.relay import DEFECT_MESSAGE, Live, LivePart, Relay
from tg_gateway.telemetry import MALFORMED, MetricsPage
from tg_gateway.websocket import Backend, WebSocketHandler

log = structlog.get_logger()

HANDOVER_SECONDS: Final = 2.0
"""Seconds for which a gateway that hands over still answers on open connections."""
LAST_WRITE_SECONDS = 2.0
"""Seconds that handlers get at the end to write what they have."""
RESUMABLE: Final = "resumable "
"""The scope of answers requested over WebSockets; their bounds are separate from those over HTTP."""
TIMER_ROUNDING_SECONDS = 86_400.0
"""Below this many seconds aiohttp's timers are exact. By default aiohttp rounds up to whole seconds: the pings of
thousands of sockets would come at once and delay all chunks by 0.2 s."""
_SERVER_LOG: Final = logging.getLogger("tg_gateway.server")
# What clients offer there may be a token, and each handshake would log a line.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


KNOWING_SECONDS = 3.0
"""Seconds within which the processors of a bus have announced themselves to a new gateway."""


ACCEPTS_PER_TURN: Final = 32
"""How many connections of a socket uvloop accepts in one turn: 256 simultaneous ones take eight turns, and running
streams wait for 32 set-ups at most, about 10 ms."""

SHARED_ACCEPTS_PER_TURN: Final = 8
"""Connections in one turn of a shared socket: the process that wakes first must not take all of a burst."""


async def listen(
    runner: web.BaseRunner, sockets: Iterable[socket.socket], accepts_per_turn: int = ACCEPTS_PER_TURN
) -> None:
    """Accept on these sockets, up to this many connections of each in a turn; the runner closes them."""
    # uvloop accepts one connection of a listener in a turn, which takes 5 to 10 ms while 200 streams relay: the last of
    # 256 clients waited for seconds before its request was even read. asyncio's own loop accepts all that wait.
    copies = 1 if isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop) else accepts_per_turn
    for listener in sockets:
        for same in (listener, *(listener.dup() for _ in range(copies - 1))):
            await web.SockSite(runner, same, backlog=MAX_WAITING_CONNECTIONS).start()


async def warn_of_unserved(requestor: Requestor, routes: Iterable[Route[Any, Any]], config: Config) -> None:
    """Log which of these services no processor on the bus serves, because the configuration file cannot show that.

    Args:
        requestor: hears the processors.
        routes: the services; plain peers announce nothing, so those are left out.
        config: has their places in the file.
    """
    asked = [route for route in routes if not route.plain]
    await requestor.presence.until_served([route.request for route in asked if route.plan is None], KNOWING_SECONDS)
    for route in asked:
        if not requestor.routes.is_served(route):
            place = config.where("flows", route.flow, route.spec.name)
            log.warning("flow.unserved", flow=route.flow, service=route.spec.name, model=route.model, at=place)


class _Malformed(logging.Filter):
    """Counts malformed requests (TLS, an attack): the HTTP server would log a traceback for each.

    Errors in handlers do not reach this filter: the middleware logs them.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        MALFORMED.inc()
        log.debug("gateway.malformed", error=type(error).__name__)
        return False


_SERVER_LOG.setLevel(logging.DEBUG)
_SERVER_LOG.addFilter(_Malformed())


class Gateway:
    """Enter it to listen; leave it to drain: running streams may finish within `config.drain` seconds.

    Args:
        config: address, keys, limits. Port 0 = any free one.
        requestor: this process's end of the bus, entered by its owner.
        routes: every service of every flow.
        needed: the services without which the gateway is not ready; None = all.
        limits: what one client may use.
        mounts: which protocols are where; None = all that are installed.
        shared: the sockets to listen on, in place of the configured address.

    Attributes:
        url: the URL at which it listens, with a slash at its end; set once it is entered.

    Raises:
        BadRequest: the configuration's `auth` and address do not go together, or a value for a protocol is wrong.
        Unavailable: as `load_mounts`.
    """

    def __init__(
        self,
        config: GatewayConfig,
        requestor: Requestor,
        routes: tuple[Route[Any, Any], ...],
        *,
        needed: tuple[Route[Any, Any], ...] | None = None,
        limits: Limits | None = None,
        mounts: Sequence[Mount] | None = None,
        shared: SharedListener | None = None,
    ) -> None:
        self.url = ""
        self._shared = shared or SharedListener()
        self._config = config
        self._requestor = requestor
        self._routes = routes
        self._edited = config
        self._asked: list[Router | Backend | BatchLines | JobQueue | LivePart] = []
        self._needed = routes if needed is None else needed
        self._limits = limits or Limits()
        table = load_mounts() if mounts is None else mounts
        self._mounts = [replace(mount, dialect=mount.dialect.configure(config)) for mount in table]
        self._authenticator = Authenticator(config, self._limits, time.monotonic)
        self._origins = Origins(config)
        self._rate_limits = RateLimits(config, time.monotonic)
        self._payers = Payers(config)

    def prepare(
        self,
        config: GatewayConfig,
        routes: tuple[Route[Any, Any], ...] | None = None,
        plans: Mapping[str, RoutePlan] | None = None,
    ) -> Callable[[], None]:
        """Check the `Followed` parts of an edited configuration, and return a function that puts them in force.

        A revoked key is refused from its next request on, on open WebSockets too; its running requests may finish. A
        running request keeps the meaning that its names had when it arrived.

        Args:
            config: the edited table.
            routes: every service of every edited flow; None = they stay.
            plans: the edited routes by name; None = they stay.

        Raises:
            BadRequest: as when it is created.
        """
        replace_keys = self._authenticator.prepare(config)
        replace_origins = self._origins.prepare(config)

        def commit() -> None:
            replace_keys()
            replace_origins()
            self._rate_limits.update(config)
            self._payers.update(config)
            if plans is not None:
                self._requestor.routes.replace(plans)
            self._edited = config
            self._routes = self._routes if routes is None else routes
            self._replace_catalogue()

        return commit

    async def warn_of_unserved(self, routes: Sequence[Route[Any, Any]], config: Config) -> None:
        """As the function of this name. The requestor has been entered; the gateway need not be."""
        await warn_of_unserved(self._requestor, routes, config)

    def _replace_catalogue(self) -> None:
        if self._asked:
            catalogue = self._make_catalogue()
            for each in self._asked:
                each.catalogue = catalogue
            self._health.follow(self._routes)

    async def __aenter__(self) -> Self:
        timeout, callers = self._config.request_timeout, self._authenticator.callers
        self._relay = Relay(self._requestor, timeout, self._rate_limits, callers, self._payers)
        self._parser = CallParser(DEFECT_MESSAGE)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._parser.aclose)
            stack.callback(MODEL_LOADS.count(self._requestor.admission.count_unanswered))
            application, refuse = self._application()
            limit = self._unauthenticated
            runner = ConnectionRunner(
                application,
                ConnectionEvents(limit.on_connection, limit.forget, refuse),
                # The server would inflate a body before anybody has checked the token; `BodyReader` does it after.
                auto_decompress=False,
                # A client that leaves cancels its handler, and so everything below, down to the provider.
                handler_cancellation=True,
                keepalive_timeout=self._limits.head,
                max_line_size=MAX_HEAD_LINE_BYTES,
                max_field_size=MAX_HEAD_LINE_BYTES,
                max_headers=MAX_HEADERS,
                lingering_time=self._limits.linger,
                access_log=None,
                logger=_SERVER_LOG,
                shutdown_timeout=LAST_WRITE_SECONDS,
                timeout_ceil_threshold=TIMER_ROUNDING_SECONDS,
            )
            await runner.setup()
            await stack.enter_async_context(running(notice_leaving(runner)))
            stack.push_async_callback(runner.cleanup)
            await stack.enter_async_context(running(self._live.part.mark()))
            await stack.enter_async_context(self._jobs)
            self._batching = await stack.enter_async_context(self._batches.make())
            accepts = ACCEPTS_PER_TURN if self._shared.processes == 1 else SHARED_ACCEPTS_PER_TURN
            await listen(runner, await self._open_sockets(), accepts)
            host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
            self.url = f"http://{host}:{runner.addresses[0][1]}/"
            log.info("gateway.listening", url=self.url, auth=self._authenticator.required)
            self._runner, self._exit = runner, stack.pop_all()
        return self

    async def _open_sockets(self) -> Sequence[socket.socket]:
        if self._shared.sockets:
            return self._shared.sockets
        # Looking up the host may take seconds.
        return await asyncio.to_thread(open_listening_sockets, self._config.host, self._config.port)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        # Listen until all this is over: a client can repeat a refused request elsewhere, but learns nothing from a
        # closed port.
        async with self._exit:
            self._sockets.drain()
            left = await self._hand_over() if self._shared.handing_over else self._config.drain
            # Another gateway goes on with the batches.
            self._batching.cancel()
            await self._jobs.drain()
            await self._relay.drain(left)
            await self._sockets.close()

    async def _hand_over(self) -> float:
        """Leave new connections to other processes on the same sockets. Returns the remaining seconds of the drain."""
        started = time.monotonic()
        for site in self._runner.sites:
            await site.stop()
        # A client on a keep-alive connection gets one more answer, with the notice that the connection closes. If a
        # connection was closed at once, a request on its way would be lost, and no client may repeat it by itself.
        await asyncio.sleep(min(HANDOVER_SECONDS, self._config.drain))
        await self._relay.until_idle(max(0.0, self._config.drain - (time.monotonic() - started)), all_read=True)
        return max(0.0, self._config.drain - (time.monotonic() - started))

    def _application(self) -> tuple[web.Application, Callable[[UnreadableHead], web.Response]]:
        config, limits, relay = self._config, self._limits, self._relay
        catalogue = self._make_catalogue()
        router = Router(self._mounts, catalogue)
        unauthenticated = self._unauthenticated = UnauthenticatedLimit(
            config.max_unauthenticated, lambda: self._authenticator.required
        )
        requestor = self._requestor
        runs = JobRuns(relay, JobLogs.of(requestor, limits), limits)
        self._jobs = JobQueue(requestor, runs, catalogue, limits)
        jobs, resumable = (
            JobRequests(requestor, self._jobs, JobStore(JobLogs.of(requestor, limits, scope), limits), limits)
            for scope in ("", RESUMABLE)
        )
        streams = KeptStreams({mount.door: mount.dialect.restore for mount in self._mounts}, requestor.time)
        lines = BatchLines(relay, jobs, streams, self._mounts, catalogue)
        self._batches = BatchRuns(requestor, limits, lines)
        backend = Backend(self._authenticator, catalogue, relay, resumable, limits, jobs, streams)
        pages = [page() for page in find_pages()]
        live = self._live = Live(requestor, relay, catalogue, lambda: self._authenticator.required)
        self._asked = [router, backend, live.part, self._jobs, lines]
        self._sockets = WebSocketHandler(backend, config, unauthenticated)
        handlers = HttpHandlers(
            relay,
            config,
            limits,
            parser=self._parser,
            requestor=requestor,
            jobs=jobs,
            live=live,
            streams=streams,
            open_batches=self._batches.of,
        )
        shown = {"/metrics": MetricsPage().show, **{page.path: page.show for page in pages}}
        middleware = Middleware(
            self._authenticator, self._origins, unauthenticated, router, limits, shared=self._shared, shown=shown.keys()
        )
        application = web.Application(
            middlewares=[middleware.admit], client_max_size=max(config.body_limit, config.large_body_limit)
        )
        application.add_routes(router.routes(handlers.answer, self._sockets.answer))
        self._health = Health(self._requestor, self._needed, relay, limits)
        self._health.follow(self._routes)
        application.add_routes(self._health.routes())
        if config.docs:
            application.add_routes(Documentation(self._mounts).routes())
        application.add_routes([web.get(path, show, expect_handler=defer_expectation) for path, show in shown.items()])
        return application, middleware.refuse_unreadable

    def _make_catalogue(self) -> Catalogue:
        return Catalogue.of(self._requestor, self._routes, self._edited)
