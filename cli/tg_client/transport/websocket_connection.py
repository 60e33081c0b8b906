"""WebSocketTransport, LmtpSocket -> aiohttp -> socket: only this file imports aiohttp; import it late, it is slow."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp

from tg_client.transport.errors import (
    BROKEN,
    INVALID_URL,
    NO_GATEWAY,
    NO_HTTP,
    NO_TLS,
    SLOW,
    UNKNOWN_HOST,
    UNTRUSTED,
    Reason,
    WireError,
    connecting,
    refusal,
)
from tg_client.transport.http_connection import CONNECT_TIMEOUT_SECONDS

_KINDS: tuple[tuple[type[Exception], Reason], ...] = (
    (aiohttp.InvalidURL, INVALID_URL),
    (aiohttp.ClientConnectorCertificateError, UNTRUSTED),
    (aiohttp.ClientSSLError, NO_TLS),
    (aiohttp.ConnectionTimeoutError, SLOW),
    (aiohttp.ClientConnectorDNSError, UNKNOWN_HOST),
    (aiohttp.ClientConnectorError, NO_GATEWAY),
    (aiohttp.ClientResponseError, NO_HTTP),
    (aiohttp.ClientError, BROKEN),
)
"""Subclasses come before their bases, because the first match counts."""


class WebSocketConnection:
    """Created by `open_websocket`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, base: str) -> None:
        self._socket = socket
        self._base = base

    async def send(self, text: bytes) -> None:
        """Send a frame of text. Raises TgError."""
        with _translated(self._base):
            await self._socket.send_frame(text, aiohttp.WSMsgType.TEXT)

    async def receive(self) -> str | None:
        """The text of the next frame; None = it is not a text frame, or the socket is closed. Raises TgError."""
        with _translated(self._base):
            data = (await self._socket.receive()).data
        return data if isinstance(data, str) else None

    async def frames(self) -> AsyncIterator[str | bytes]:
        """All frames, until the socket is closed."""
        async for message in self._socket:
            yield message.data


@asynccontextmanager
async def open_websocket(
    base: str, path: str, token: str | None, *, max_frame: int, heartbeat: float | None = None
) -> AsyncIterator[WebSocketConnection]:
    """Open a WebSocket of the gateway at `base`; it is closed when the block is left.

    Args:
        base: the gateway's URL.
        path: where the socket is below it.
        token: the bearer token.
        max_frame: bytes of the largest frame from the gateway.
        heartbeat: seconds between pings; a gateway that answers no ping for half of that time is considered dead.

    Raises:
        TgError: no WebSocket answers there, or it refuses.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # No cookies, as a gateway has none.
    session = aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
        middlewares=(_refuse_redirect,),
    )
    timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
    async with session:
        with _translated(base):
            try:
                socket = await session.ws_connect(
                    f"{base}{path}", heartbeat=heartbeat, max_msg_size=max_frame, timeout=timeout
                )
            except aiohttp.WSServerHandshakeError as error:
                retry_after = error.headers.get("Retry-After") if error.headers else None
                raise refusal(base, error.status, retry_after, b"") from None
        async with socket:
            yield WebSocketConnection(socket, base)


async def _refuse_redirect(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """End the handshake at a redirect. aiohttp would follow it, and the greeting would send the token elsewhere."""
    response = await send(request)
    if 300 <= response.status < 400:
        response.close()
        raise aiohttp.WSServerHandshakeError(response.request_info, (), status=response.status)
    return response


@contextmanager
def _translated(base: str) -> Iterator[None]:
    with connecting(base):
        try:
            yield
        except aiohttp.ClientError as error:
            raise WireError(next(ours for theirs, ours in _KINDS if isinstance(error, theirs))) from None
