"""Metrics -> Prometheus, for a process without a gateway: one page on a port of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import start_http_server

from tg_schema.errors import Unavailable


@asynccontextmanager
async def metrics_page(host: str, port: int) -> AsyncIterator[None]:
    """Serve this process's metrics at `http://host:port/metrics`, from a thread of their own, while the block runs.

    Raises:
        Unavailable: the port cannot be listened on.
    """
    try:
        server, thread = start_http_server(port, host)
    except OSError:
        where = f"port {port} of {host}"
        raise Unavailable(f"metrics cannot be shown on {where}: taken or not allowed; take another port") from None
    try:
        yield
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)
