"""WebSocket transport: the handshake, incoming messages of any protocol, and the ways in which a socket can end."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.http import WSMessageNoDecodeText
from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_gateway.access import UnauthenticatedLimit
from tg_gateway.dialects import Conversation
from tg_gateway.http import DOOR, ENTRY, PRINCIPAL
from tg_gateway.telemetry import SOCKETS
from tg_gateway.websocket.session import Backend, Session
from tg_gateway.websocket.writer import SocketWriter
from tg_schema.errors import BadRequest, SlowConsumer, Unavailable

CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds that a client may take to answer our close."""
LARGE_MESSAGE_FACTOR = 4
"""On `large` mounts, the limit of a request's size as a multiple of `body_limit`."""
TAKING_SECONDS = 0.01
"""Seconds of work on one socket's messages after which other tasks get a turn."""
CUT_MESSAGE_FACTOR = 4
"""Multiple of its limit above which a request ends its socket, instead of being refused."""
PONG = 0x8A
"""First byte of a whole pong (RFC 6455, section 5.2)."""


_NO_HANDSHAKE = "this path is a WebSocket: open it with the handshake of RFC 6455, by a ws:// or wss:// URL"


class _Socket(web.WebSocketResponse[Literal[False]]):
    """A WebSocket that ends every running request with an error before it closes."""

    # Kept outside aiohttp's own attributes: two more would make its dict take 1.5 KiB more.
    __slots__ = ("conversation", "session")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.session: Session | None = None
        self.conversation: Conversation | None = None

    @override
    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        if self.session is not None:
            self.session.end(Unavailable("the socket was closed before the answer was complete; ask again"))
        return await super().close(code=code, message=message, drain=drain)


class WebSocketHandler:
    """All sockets of the gateway."""

    def __init__(self, backend: Backend, config: GatewayConfig, unauthenticated: UnauthenticatedLimit) -> None:
        self._backend = backend
        self._config = config
        self._unauthenticated = unauthenticated
        self._sockets: set[_Socket] = set()

    def drain(self) -> None:
        """Tell all sockets that the gateway is about to leave."""
        for socket in self._sockets:
            if socket.conversation is not None:
                socket.conversation.drain()

    async def close(self) -> None:
        """Close all sockets, within a bounded time; every request that still runs gets an error first."""
        closing = [asyncio.create_task(socket.close(code=WSCloseCode.GOING_AWAY)) for socket in self._sockets]
        if closing:
            _, late = await asyncio.wait(closing, timeout=2 * CLOSE_TIMEOUT_SECONDS)
            for task in late:
                task.cancel()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Open a socket, and serve it until it ends."""
        entry, limits = request[ENTRY], self._backend.limits
        entry.service = "socket"
        if self._backend.relay.draining or len(self._sockets) >= limits.sockets:
            raise Unavailable("the gateway takes no more sockets now; try again", retry_after=1.0)
        mount = request[DOOR].mount
        max_request = self._config.body_limit * (LARGE_MESSAGE_FACTOR if mount.large else 1)
        socket = _Socket(
            timeout=CLOSE_TIMEOUT_SECONDS,
            heartbeat=self._config.keep_alive,
            # No compression: a deflate window per socket would take more memory than all else of it.
            compress=False,
            # A request over the limit is refused in its own envelope; only one far beyond it ends the whole socket.
            max_msg_size=CUT_MESSAGE_FACTOR * max_request,
            # Receive bytes, as the parsers want: text would be decoded here only to be encoded again.
            decode_text=False,
            # Receive pings as messages: if `receive` answered them, each would restart the wait for a token.
            autoping=False,
        )
        socket.headers["X-Request-Id"] = entry.request
        try:
            await socket.prepare(request)
        except web.HTTPBadRequest:
            raise BadRequest(_NO_HANDSHAKE) from None
        except ValueError:
            raise BadRequest("the handshake's Sec-WebSocket-Key is no Base64 text") from None
        writer = SocketWriter(request, limits.write, limits.socket_bytes)
        # Registered only now: a socket whose handshake failed cannot be closed.
        self._sockets.add(socket)
        SOCKETS.inc()
        try:
            async with Session(
                self._backend,
                writer,
                entry,
                request.remote or "",
                request.get(PRINCIPAL),
                door=mount.door,
                max_request=max_request,
            ) as session:
                socket.session = session
                conversation = socket.conversation = mount.dialect.converse(session)
                await self._serve(socket, session, conversation, writer, request)
        finally:
            SOCKETS.dec()
            self._sockets.discard(socket)
            # Break the cycle of session, task and socket, which the garbage collector would free much too late.
            socket.session = socket.conversation = None
        return socket

    async def _serve(
        self, socket: _Socket, session: Session, conversation: Conversation, writer: SocketWriter, request: web.Request
    ) -> None:
        """Take messages until the socket ends."""
        entry, transport = request[ENTRY], request.transport
        time = asyncio.get_running_loop().time
        until: float | None = None
        taking = 0.0
        while True:
            if session.key:
                self._unauthenticated.forget(transport)
                until = None
            else:
                # One deadline for a right token: other messages in between must not extend it.
                until = until or time() + self._config.auth_timeout
            message = await _receive(socket, None if until is None else until - time())
            if message is None:
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"no auth frame came", drain=False)
                if transport is not None:
                    # Abort it: after a mere close, it would keep its place in its address's limit until its client has
                    # read everything.
                    transport.abort()
                return
            began = time()
            if not _take(message, conversation, writer):
                return
            taking += time() - began
            # If the next message has arrived too, `receive` does not suspend, and no other task would run.
            if taking > TAKING_SECONDS:
                taking = 0.0
                await asyncio.sleep(0)
            # Do not read from a client that does not read its answers.
            if writer.full:
                try:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(until):
                            await writer.drain()
                except SlowConsumer as slow:
                    entry.end(slow.status, slow.type)
                    return


def _take(message: WSMessageNoDecodeText, conversation: Conversation, writer: SocketWriter) -> bool:
    """Answer one message; returns whether further ones may follow."""
    match message.type:
        case WSMsgType.TEXT | WSMsgType.BINARY:
            conversation.take(message.data)
        case WSMsgType.PING:
            writer.write(bytes((PONG, len(message.data))) + message.data)
        case _:
            return message.type is WSMsgType.PONG
    return True


async def _receive(socket: _Socket, seconds: float | None) -> WSMessageNoDecodeText | None:
    """The next message, which may be a ping or pong; None = none arrived in time, or the time had already passed."""
    if seconds is not None and seconds <= 0:
        return None
    try:
        return await socket.receive(timeout=seconds)
    except TimeoutError:
        return None
