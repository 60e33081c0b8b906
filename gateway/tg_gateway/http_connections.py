"""HTTP server -> whoever bounds its connections: each one as it is opened and closed, before it has asked anything."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from tg_base.runtime import FewItems

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
