"""HTTP server -> whoever bounds its connections: each one as it is opened and closed, before it has asked anything."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

from tg_base.runtime import FewItems

LOOK_SECONDS: Final = 0.5
"""Between two looks for clients that have left."""
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
"""Known on Linux alone."""
_ESTABLISHED: Final = 1

Told = Callable[[asyncio.Transport], None]


def watch_connections(server: web.Server, opened: Told, closed: Told) -> None:
    """Call `opened` and `closed` for every connection from now on; aiohttp has no other place for it.

    Args:
        server: that of a runner that was set up, and does not listen yet.
        opened: may write to the connection and close it; nothing was read from it.
        closed: it is gone.
    """
    made, lost = server.connection_made, server.connection_lost

    def connection_made(handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        # It is nearly always short: most clients wait for an answer before they ask again.
        handler._messages = FewItems()  # type: ignore[assignment]  # noqa: SLF001 - there is no public way
        made(handler, transport)
        opened(transport)

    def connection_lost(handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        # Before `lost`, which takes the transport away.
        if handler.transport is not None:
            closed(handler.transport)
        lost(handler, exc)

    server.connection_made = connection_made  # type: ignore[method-assign]
    server.connection_lost = connection_lost  # type: ignore[method-assign]


async def notice_leaving(server: web.Server) -> None:
    """Close the connections of clients that have left while nothing is read from them, until cancelled.

    aiohttp does not read behind 32 requests that wait for the one before them, and would not see the end of the
    connection until that one is answered. What system call tells it elsewhere than on Linux differs; there it waits.

    Args:
        server: that of a runner that was set up.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        abort_left(server)


def abort_left(server: web.Server) -> None:
    """Close those connections of clients that have left by now."""
    for handler in server.connections:
        # There is no public way to ask for this either.
        if handler._buffer_paused and handler.transport is not None and _has_left(handler.transport):  # noqa: SLF001
            handler.transport.abort()


def _has_left(transport: asyncio.Transport) -> bool:
    if _TCP_INFO is not None:
        with suppress(OSError):
            state: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
            return state[0] != _ESTABLISHED
    return False
