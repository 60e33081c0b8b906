"""Connection -> limit: counts each address's connections without a valid token, so that no address can take all."""

import asyncio
from collections.abc import Callable

import structlog

from tg_gateway.access.throttle import network_of
from tg_gateway.telemetry import UNAUTHENTICATED_REFUSED

log = structlog.get_logger()


class UnauthenticatedLimit:
    """All connections, with and without WebSockets on them, that have not shown a right token yet.

    Args:
        limit: how many of them one address (IPv6: one /64) may have; 0 = as many as it likes.
        required: whether requests need a token now.
    """

    def __init__(self, limit: int, required: Callable[[], bool]) -> None:
        self._limit = limit
        self._required = required
        self._networks: dict[asyncio.Transport, str] = {}
        # By network, the oldest first.
        self._open: dict[str, dict[asyncio.Transport, None]] = {}

    def on_connection(self, transport: asyncio.Transport) -> None:
        """Count a new connection. Over the limit, the oldest of its address is cut."""
        if not self._limit or not self._required():
            return
        peer = transport.get_extra_info("peername")
        network = network_of(peer[0] if isinstance(peer, tuple) else "")
        # Cut the oldest, not the newest: a client that held the limit would lock out the rest of its address.
        if len(self._open.get(network, ())) >= self._limit:
            oldest = next(iter(self._open[network]))
            UNAUTHENTICATED_REFUSED.inc()
            log.debug("gateway.unauthenticated_refused", address=network)
            self.forget(oldest)
            oldest.abort()
        self._networks[transport] = network
        self._open.setdefault(network, {})[transport] = None

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Stop counting a connection, which has shown a right token or was closed."""
        network = self._networks.pop(transport, None) if transport is not None else None
        if network is not None and transport is not None:
            del self._open[network][transport]
            if not self._open[network]:
                del self._open[network]
