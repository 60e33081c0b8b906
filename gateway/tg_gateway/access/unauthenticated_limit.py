"""Connection -> limit: counts each address's connections until they show a right token, so that none can take all."""

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from tg_gateway.access.throttle import network_of
from tg_gateway.dialects import Answer
from tg_gateway.telemetry import UNAUTHENTICATED_REFUSED
from tg_schema.errors import RateLimited

log = structlog.get_logger()

RETRY_AFTER_SECONDS = 1.0
CONNECTION_REFUSED = RateLimited(
    "too many connections of this address have not shown a token; show one, or wait", retry_after=RETRY_AFTER_SECONDS
)


class UnauthenticatedLimit:
    """All connections, with and without WebSockets on them, that have not shown a right token yet.

    Args:
        limit: how many of them one address (IPv6: one /64) may have; 0 = as many as it likes.
        answer: what a connection over the limit gets; its protocol is not known yet.
        required: whether requests need a token now.
    """

    def __init__(self, limit: int, answer: Answer, required: Callable[[], bool]) -> None:
        self._limit = limit
        self._required = required
        self._answer = (
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: %b\r\nConnection: close\r\n"
            b"Retry-After: %d\r\nContent-Length: %d\r\n\r\n%b"
            % (answer.content_type.encode(), RETRY_AFTER_SECONDS, len(answer.body), answer.body)
        )
        self._networks: dict[asyncio.BaseTransport, str] = {}
        self._counts: Counter[str] = Counter()

    def on_connection(self, transport: asyncio.Transport) -> None:
        """Count a new connection. One over the limit is answered with 429 and closed before its first request."""
        if not self._limit or not self._required():
            return
        peer = transport.get_extra_info("peername")
        network = network_of(peer[0] if isinstance(peer, tuple) else "")
        if self._counts[network] >= self._limit:
            UNAUTHENTICATED_REFUSED.inc()
            log.debug("gateway.unauthenticated_refused", address=network)
            transport.write(self._answer)
            transport.close()
            return
        self._networks[transport] = network
        self._counts[network] += 1

    def forget(self, transport: asyncio.BaseTransport | None) -> None:
        """Stop counting a connection, which has shown a right token or was closed."""
        network = self._networks.pop(transport, None) if transport is not None else None
        if network is not None:
            self._counts[network] -= 1
            if not self._counts[network]:
                del self._counts[network]
