"""A web server on a loopback port, for fakes that are servers."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

BODY_BYTES: Final = 64 * 1024 * 1024


@asynccontextmanager
async def serve_routes(
    routes: Mapping[str, Handler], path: str = "", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve while the block runs. A client that leaves cancels its answer, as at uvicorn.

    Args:
        routes: by method, which may be "*", and path: "POST /v1/chat/completions".
        path: of the URL that is yielded.
        port: 0 = a free one.
        tls: None = plain HTTP.
    """
    app = web.Application(client_max_size=BODY_BYTES)
    for route, handler in routes.items():
        method, where = route.split(" ")
        app.router.add_route(method, where, handler)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}{path}"
    finally:
        await runner.cleanup()
