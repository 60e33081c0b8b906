"""Listening socket -> a task for each gRPC call, over our own half of HTTP/2: what a picker needs of a gRPC server.

Why not gRPC's own: it takes more CPU than all else that a picker does (bench/README.md, "Through Envoy").
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import structlog
from typing_extensions import override

from tg_gateway.envoy.connection_faults import FaultLog
from tg_gateway.envoy.grpc_call import GrpcCall, GrpcFault, GrpcStatus
from tg_gateway.envoy.grpc_timeout import read_timeout
from tg_gateway.envoy.http2_connection import MAX_STREAMS, Http2Connection
from tg_gateway.envoy.http2_headers import MAX_HEADER_BYTES, TOO_LARGE, Fields
from tg_gateway.envoy.http2_memory import MAX_HELD_BYTES
from tg_gateway.envoy.http2_stream import Http2Stream

MAX_UNSENT_CONTROL = 1024 * 1024
"""Bytes that wait for a peer that reads nothing, before its connection is lost."""
MAX_CONNECTIONS = 512
"""At once, if nobody says how many: below the 1,024 files that a process may have open on most hosts."""
KEEPALIVE_SECONDS = 60.0
"""Without a sign of life for so long a connection is asked for one, and lost after as long again."""
BACKLOG = 1024
GRPC_MEDIA_TYPES = (b"application/grpc+", b"application/grpc;")
"""How all other names of it begin than "application/grpc" itself. What is called gRPC-Web has other trailers."""

Method = Callable[[GrpcCall], Coroutine[Any, Any, None]]
_log = structlog.stdlib.get_logger("tg.envoy")


class GrpcServer:
    """Runs the calls of all connections.

    Args:
        methods: by path, such as `/package.Service/Method`.
        max_message: bytes of a message that callers may send.
        max_held: bytes that the calls of one connection may hold together.
        max_connections: that may be open. One more is told to go away, as by a server that stops.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        max_message: int,
        max_held: int = MAX_HELD_BYTES,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._methods = {path.encode(): method for path, method in methods.items()}
        self._max_message = max_message
        self.max_held = max_held
        self.max_connections = max_connections
        self._calls: dict[asyncio.Task[None], GrpcCall] = {}
        self.connections: set[GrpcConnection] = set()
        self.faults = FaultLog()
        self.is_stopping = False
        self.closed = asyncio.Event()
        self.closed.set()

    @property
    def calls(self) -> int:
        """How many run."""
        return len(self._calls)

    def begin(self, stream: Http2Stream, fields: Fields) -> "asyncio.Task[None] | None":
        """Begin a call. None = it is no call of a known method; the caller is told."""
        stream.receiver = call = GrpcCall(stream, self._max_message)
        media_type = fields.get(b"content-type", b"")
        if media_type != b"application/grpc" and not media_type.startswith(GRPC_MEDIA_TYPES):
            if fields is TOO_LARGE:
                call.close(GrpcStatus.RESOURCE_EXHAUSTED, f"the call's headers exceed {MAX_HEADER_BYTES} bytes")
            else:
                call.refuse_media_type()
            return None
        if (method := self._methods.get(fields.get(b":path", b""))) is None or fields.get(b":method") != b"POST":
            call.close(GrpcStatus.UNIMPLEMENTED, "there is no such method")
            return None
        loop = asyncio.get_running_loop()
        call.task = task = loop.create_task(method(call))
        self._calls[task] = call
        task.add_done_callback(self._finish)
        if (seconds := read_timeout(fields.get(b"grpc-timeout"))) is not None:
            expire = loop.call_later(seconds, call.abort, GrpcStatus.DEADLINE_EXCEEDED, "the deadline has passed")
            task.add_done_callback(lambda _: expire.cancel())
        return task

    def _finish(self, task: "asyncio.Task[None]") -> None:
        call = self._calls.pop(task)
        call.task = None
        if task.cancelled():
            # Its stream is over, unless the server is being stopped.
            call.close(GrpcStatus.UNAVAILABLE, "the server is being stopped")
        elif (error := task.exception()) is None:
            call.close(GrpcStatus.OK)
        elif isinstance(error, GrpcFault):
            call.close(error.status, str(error))
        else:
            _log.error("picker.failed", exc_info=error)
            call.close(GrpcStatus.UNKNOWN, f"the call failed: {type(error).__name__}")

    async def stop(self, seconds: float) -> None:
        """Let calls that have begun end, for so long; then cancel them, and close all connections."""
        self.is_stopping = True
        for connection in tuple(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(seconds):
                await self.closed.wait()
        except TimeoutError:
            tasks = tuple(self._calls)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in tuple(self.connections):
                connection.close()


class GrpcConnection(asyncio.Protocol):
    """One connection of a caller."""

    def __init__(self, server: GrpcServer, keepalive: float) -> None:
        self._server = server
        self._keepalive = keepalive
        self._running = 0
        self._heard = False
        self._asked = False
        self._unsent_control = 0
        self._paused = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._http = Http2Connection(self._write, self._accept, self._finish, self._server.max_held)
        self._server.connections.add(self)
        self._server.closed.clear()
        self._timer = asyncio.get_running_loop().call_later(self._keepalive, self._check)
        self._http.begin()
        if self._server.is_stopping:
            # It was accepted before the socket was closed.
            self.drain()
        elif len(self._server.connections) > (most := self._server.max_connections):
            self._tell(f"{most} connections are open, and no more may be; raise max_connections, or start more pickers")
            self.drain()

    def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            # The connection failed just now; `connection_lost` follows. asyncio would log each further try.
            return
        if self._paused:
            # Data waits for `resume`; answers to pings and settings, and ends of streams, do not.
            self._unsent_control += len(data)
            if self._unsent_control > MAX_UNSENT_CONTROL:
                self._give_up("the peer asks and reads no answers; see whether it hangs")
                return
        self._transport.write(data)

    @override
    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._http.receive(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._http.lose("the connection is lost")
        self._server.connections.discard(self)
        if not self._server.connections:
            self._server.closed.set()

    @override
    def pause_writing(self) -> None:
        self._paused = True
        self._http.pause()

    @override
    def resume_writing(self) -> None:
        self._paused = False
        self._unsent_control = 0
        self._http.resume()

    def drain(self) -> None:
        """Take no more calls; close when those that have begun are over."""
        self._http.drain()

    def _finish(self) -> None:
        if self._http.closed:
            self._tell(self._http.closed)
        self.close()

    def _give_up(self, reason: str) -> None:
        self._tell(reason)
        self._transport.abort()

    def _tell(self, reason: str) -> None:
        host, port, *_ = self._transport.get_extra_info("peername") or ("", 0)
        self._server.faults.tell(reason, f"{host}:{port}")

    def close(self) -> None:
        """Send what was written, and close."""
        self._http.lose("the connection is closed")
        self._transport.close()

    def _accept(self, stream: Http2Stream, fields: Fields) -> bool:
        # A stream that its peer has reset counts until its task has ended, so that resets cannot pile up work.
        if self._running >= MAX_STREAMS:
            return False
        if (task := self._server.begin(stream, fields)) is not None:
            self._running += 1
            task.add_done_callback(self._count_down)
        return True

    def _count_down(self, _: object) -> None:
        self._running -= 1

    def _check(self) -> None:
        """Ask for a sign of life where there was none; twice without one, the peer is gone."""
        self._http.calm()
        if not self._heard and self._asked:
            self._give_up("the peer gives no sign of life; see whether its host can be reached")
            return
        self._asked = not self._heard
        if self._asked:
            self._http.ping(b"keepaliv")
        self._heard = False
        self._timer = asyncio.get_running_loop().call_later(self._keepalive, self._check)


@asynccontextmanager
async def serve_grpc(
    server: GrpcServer, address: str, drain_seconds: float, keepalive: float = KEEPALIVE_SECONDS
) -> AsyncIterator[str]:
    """Serve at "host:port" until the block is left, then let calls end for `drain_seconds`. Yields the address.

    Several processes may listen on one address: the kernel shares the connections among them. "[::]" is every address
    of this host, those of IPv4 too.

    Raises:
        OSError: the address is not free, or none of this host.
    """
    host, _, port = address.rpartition(":")
    make = partial(GrpcConnection, server, keepalive)
    loop = asyncio.get_running_loop()
    if host == "[::]" and socket.has_dualstack_ipv6():
        # asyncio's own would take IPv6 alone.
        listening = await loop.create_server(make, sock=_listen_everywhere(int(port)), backlog=BACKLOG)
    else:
        listening = await loop.create_server(make, host.strip("[]"), int(port), reuse_port=True, backlog=BACKLOG)
    try:
        yield f"{host}:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await server.stop(drain_seconds)


def _listen_everywhere(port: int) -> socket.socket:
    return socket.create_server(
        ("::", port), family=socket.AF_INET6, backlog=BACKLOG, reuse_port=True, dualstack_ipv6=True
    )
