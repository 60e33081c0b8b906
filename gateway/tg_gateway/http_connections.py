"""aiohttp's connections -> the limits on them: each is reported when it opens and closes, even without a request."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from tg_gateway.http import MAX_PATH_BYTES, UnreadableHead, begins_request

LOOK_SECONDS: Final = 0.5
"""Seconds between two checks for clients that have left."""
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
"""The socket option; None on systems other than Linux."""
_ESTABLISHED: Final = 1

OnTransport = Callable[[asyncio.Transport], None]


class ConnectionEvents(NamedTuple):
    """Callbacks for the events of a server's connections.

    Attributes:
        opened: may write to the connection and close it; nothing was read from it.
        closed: the connection is gone.
        refuse: the answer to bytes that are no request; None = aiohttp's own.
    """

    opened: OnTransport
    closed: OnTransport
    refuse: Callable[[UnreadableHead], web.Response] | None = None


class ConnectionRunner(web.AppRunner):
    """An application's runner, whose connections report their events.

    Args:
        application: the application that is served.
        events: the events of its connections.
        handler_cancellation, shutdown_timeout: as `web.AppRunner`.
        options: the options of each connection, as `web.RequestHandler`.
    """

    def __init__(
        self,
        application: web.Application,
        events: ConnectionEvents,
        *,
        handler_cancellation: bool = False,
        shutdown_timeout: float,
        **options: Any,
    ) -> None:
        super().__init__(application, handler_cancellation=handler_cancellation, shutdown_timeout=shutdown_timeout)
        self._events = events
        self._options = options

    # A site listens with this, and calls it for each connection.
    @property
    @override
    def server(self) -> Any:
        server, loop = super().server, asyncio.get_running_loop()
        return server and (lambda: Connection(server, self._events, loop=loop, **self._options))

    @property
    def connections(self) -> list[web.RequestHandler]:
        """The open connections."""
        server = super().server
        return [] if server is None else server.connections


class Connection(web.RequestHandler):
    """aiohttp's connection."""

    __slots__ = ("_begin", "_events", "_is_socket", "_lingering", "_refused")

    def __init__(self, manager: web.Server, events: ConnectionEvents, **options: Any) -> None:
        super().__init__(manager, **options)
        self._events = events
        self._is_socket = False
        # The first bytes of the last request.
        self._begin = b""
        self._refused = False
        self._lingering: float = options.get("lingering_time", 0.0)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            self._events.opened(self.transport)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        # Read this before the connection drops it.
        if self.transport is not None:
            self._events.closed(self.transport)
        super().connection_lost(exc)
        if self._is_socket:
            # Break a reference cycle, which the garbage collector would free late.
            super().set_parser(None)  # type: ignore[arg-type]

    @override
    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        self._is_socket = True
        super().set_parser(parser, data_received_cb)

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if b"\n" not in self._begin and len(self._begin) < MAX_PATH_BYTES:
            self._begin += data[:MAX_PATH_BYTES]
        elif begins_request(data):
            self._begin = data[:MAX_PATH_BYTES]
        super().data_received(data)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if self._events.refuse is None or not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        self._refused = True
        # The refusal is counted there and never logged as an error: anybody can send such bytes.
        self.logger.debug("no request", exc_info=exc)
        refusal = UnreadableHead.of(exc, self._begin)
        response = self._events.refuse(refusal)
        return _Lingering(response, self._lingering) if refusal.goes_on else response


class _Lingering(web.Response):
    """A refusal whose sender may still be sending: read on for a while, or a reset would overtake the refusal."""

    def __init__(self, response: web.Response, seconds: float) -> None:
        super().__init__(status=response.status, headers=response.headers, body=response.body)
        self.force_close()
        self._seconds = seconds

    @override
    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        await asyncio.sleep(self._seconds)


async def notice_leaving(runner: ConnectionRunner) -> None:
    """Close the connections of clients that have left while nothing is read from them, until cancelled.

    aiohttp stops reading after 32 pipelined requests, and would not see the end of the connection until the first is
    answered. Other systems than Linux have no such call here; there the connection waits.

    Args:
        runner: the runner of a server that was set up.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        abort_left(runner)


def abort_left(runner: ConnectionRunner) -> None:
    """Close the connections of clients that have left."""
    for handler in runner.connections:
        transport = handler.transport
        if transport is not None and not transport.is_reading() and _has_left(transport):
            transport.abort()


def _has_left(transport: asyncio.Transport) -> bool:
    if _TCP_INFO is not None:
        with suppress(OSError):
            state: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
            return state[0] != _ESTABLISHED
    return False
