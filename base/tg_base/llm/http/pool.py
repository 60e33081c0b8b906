"""Provider's request -> socket: pooled connections with limits, so that a hostile server cannot starve other streams.

Bodies are never decompressed, little is read ahead, and headers are bounded. The SDKs' own HTTP clients cost about 1 ms
more CPU per request and 130 µs more per chunk.
"""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import msgspec
from aiohappyeyeballs import AddrInfoType, start_connection
from multidict import CIMultiDict
from typing_extensions import override

from tg_base.llm.core import note_unsent
from tg_base.llm.http.answer import HttpAnswer
from tg_base.llm.http.connections import READ_BYTES, UPGRADE, BrokenHeadError, HttpConnection
from tg_base.llm.http.failures import (
    CONNECT_TIMEOUT_SECONDS,
    SLOW,
    UNREACHABLE,
    UNREACHABLE_BY_PROXY,
    unreachable,
)
from tg_base.llm.http.response import Method
from tg_base.telemetry import trace
from tg_schema.errors import BadRequest, ProtocolError, Timeout, Unavailable

IDLE_SECONDS = 15.0
"""Seconds for which a connection is kept for the next request."""
NAME_SECONDS = 10.0
"""Seconds for which the addresses of a host are kept: to look them up takes a thread and a question to DNS."""
NEXT_ADDRESS_SECONDS = 0.25
"""Seconds after which a host's next address is tried too."""

_ENCODED = "the provider compresses its answers although nobody asked for that; switch it off there, or in its proxy"
_UPGRADED = "the provider switched to another protocol although nobody asked for that; check base_url"
_CLOSED = "the model was closed, and its connections to the provider with it; ask again"
_NO_HEADER = "a header for the provider has characters that HTTP does not allow; check the key and the headers"
_PORTS = {"http": 80, "https": 443}
_OURS = (
    "accept-encoding", "connection", "content-length", "host", "traceparent", "transfer-encoding", "x-request-id",
)  # fmt: skip


class Place(msgspec.Struct, frozen=True):
    """Where connections go.

    Attributes:
        host, port: the host and port of the server.
        secure: whether the server speaks TLS.
        proxy: the proxy on the way to the server.
    """

    host: str
    port: int
    secure: bool
    proxy: str | None


class HttpTarget(msgspec.Struct, frozen=True, eq=False):
    """Where requests go: everything of a request but its method and body.

    Attributes:
        place: the key by which a connection is found.
        path: the part of the request line after the method.
        head: the headers of every request.
    """

    place: Place
    path: str
    head: bytes

    @override
    def __repr__(self) -> str:
        # The headers, or the query, hold the key.
        return f"HttpTarget({self.place.host}:{self.place.port}{self.path.partition('?')[0]})"


class HttpPool:
    """Created in any thread; used and closed on one loop. It connects at the first request.

    Pools with the same certificates share their connections, which are closed when the last of these pools is.

    Args:
        tls: the trusted certificates; True = the system's.
        proxied: whether the proxies that the environment names are used.
    """

    def __init__(self, tls: ssl.SSLContext | Literal[True] = True, *, proxied: bool = True) -> None:
        self._tls = tls
        self._proxied = proxied
        self._session: Connections | None = None
        self._closed = False
        self._proxies: dict[tuple[str, str], str | None] = {}

    async def ask(self, method: Method, url: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> HttpAnswer:
        """Send a single request to a target of its own. Arguments as for `target`, the rest as for `send`."""
        return await self.send(method, self.target(url, headers), body)

    def target(self, url: str, headers: Iterable[tuple[str, str]]) -> HttpTarget:
        """The common part of many requests, made once because it is a large part of the cost of sending one.

        Args:
            url: already encoded, as by an SDK.
            headers: those in `_OURS` are replaced.

        Raises:
            BadRequest: a header has characters that HTTP does not allow.
            Unavailable: the URL has no host.
        """
        parts = urlsplit(url)
        try:
            place = Place(
                (parts.hostname or "").encode("idna").decode(),
                parts.port or _PORTS[parts.scheme],
                parts.scheme == "https",
                self._find_proxy(parts),
            )
        except (KeyError, ValueError):
            raise unreachable() from None
        sent = CIMultiDict(headers)
        for name in _OURS:
            sent.popall(name, None)
        host = f"[{place.host}]" if ":" in place.host else place.host
        sent["Host"] = host if parts.port in {None, _PORTS[parts.scheme]} else f"{host}:{parts.port}"
        # A compressed body may inflate to any size, and inflating costs each chunk time.
        sent["Accept-Encoding"] = "identity"
        sent.update({} if "Authorization" in sent else _make_credentials("Authorization", parts))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if place.proxy is not None and not place.secure:
            path = f"http://{sent['Host']}{path}"
            sent.update(_make_credentials("Proxy-Authorization", urlsplit(place.proxy)))
        if not path.isprintable():
            raise BadRequest(_NO_HEADER)
        return HttpTarget(place, path, _write_headers(sent.items()))

    async def send(
        self, method: Method, target: HttpTarget, body: bytes | None, headers: Iterable[tuple[str, str]] = ()
    ) -> HttpAnswer:
        """Send a request and return the answer, whatever its status. The server gets `trace.headers` as well.

        Args:
            method: the HTTP method.
            target: the target of this pool.
            body: None = no body.
            headers: in addition to those of the target.

        Raises:
            BadRequest: as `target`.
            Timeout: no connection within `CONNECT_TIMEOUT_SECONDS`.
            Unavailable: the connection was refused or broke, or the pool is closed.
            ProtocolError: the headers exceed `MAX_HEAD_BYTES`, a 2xx answer is compressed, or it is an upgrade (101).
        """
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        # Not a part of the target, which serves many requests.
        own = _write_headers((*headers, *trace.headers().items()))
        line = b"%s %s HTTP/1.1\r\n" % (method.encode(), target.path.encode())
        head = b"".join((line, target.head, own, length, b"\r\n"))
        call = note_unsent()
        try:
            connection = await self._enter_session().connect(target.place)
            if call is not None:
                call.unsent = False
            answer = await connection.ask(head, body or b"")
        except TimeoutError:
            raise Timeout(SLOW) from None
        except (OSError, ValueError):
            # ValueError: the proxy's URL has a malformed port or host name.
            raise unreachable(UNREACHABLE_BY_PROXY if target.place.proxy else UNREACHABLE) from None
        refused = _UPGRADED if answer.status == UPGRADE else _ENCODED if answer.good and answer.encoded else None
        if refused is not None:
            answer.close()
            raise ProtocolError(refused)
        return answer

    async def aclose(self) -> None:
        """Close the connections, unless another pool uses them. Safe to call twice."""
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            session.users -= 1
            if not session.users:
                del _SHARED[asyncio.get_running_loop()][self._tls]
                await session.close()

    def _enter_session(self) -> "Connections":
        # A closed pool must not enter again: it never leaves a second time, so the session would stay open for ever.
        if self._closed:
            raise Unavailable(_CLOSED)
        if self._session is None:
            shared = _SHARED.setdefault(asyncio.get_running_loop(), {})
            self._session = shared.get(self._tls) or shared.setdefault(self._tls, Connections(self._tls))
            self._session.users += 1
        return self._session

    def _find_proxy(self, url: SplitResult) -> str | None:
        """The environment's proxy for a server; cached, because each lookup scans the environment."""
        if not self._proxied:
            return None
        server = (url.scheme, url.hostname or "")
        if server not in self._proxies:
            self._proxies[server] = None if proxy_bypass(server[1]) else getproxies().get(server[0])
        return self._proxies[server]


class Connections:
    """The open connections of all pools with the same certificates.

    No limit here, because the services' capacities bound the requests.

    Attributes:
        users: the pools that use the connections.
    """

    def __init__(self, tls: ssl.SSLContext | Literal[True]) -> None:
        self.users = 0
        self._tls = ssl.create_default_context() if tls is True else tls
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Place, list[HttpConnection]] = {}
        self._open: set[HttpConnection] = set()
        self._addresses: dict[tuple[str, int], asyncio.Future[Sequence[AddrInfoType]]] = {}
        self._room = memoryview(bytearray(READ_BYTES))

    async def connect(self, place: Place) -> HttpConnection:
        """A connection that can be asked.

        Raises:
            TimeoutError: no connection could be opened in time.
            OSError: the connection was refused, or the server's certificate is not trusted.
        """
        while idle := self._idle.get(place):
            connection = idle.pop()
            if connection.idle is not None:
                connection.idle.cancel()
            if connection.is_usable():
                return connection
            connection.transport.abort()
        self._idle.pop(place, None)
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            if place.proxy is None:
                return await self._open_socket(place, place.host, place.port, secure=place.secure)
            proxy = urlsplit(place.proxy)
            if proxy.scheme not in _PORTS:
                raise BrokenHeadError
            secure, port = proxy.scheme == "https", proxy.port or _PORTS[proxy.scheme]
            host = proxy.hostname or ""
            if not place.secure:
                return await self._open_socket(place, host, port, secure=secure)
            # A connection that a proxy refused to forward must never get the server's request.
            return await self._tunnel(await self._open_socket(None, host, port, secure=secure), place, proxy)

    async def close(self) -> None:
        """Close them all."""
        for connection in self._open:
            connection.transport.abort()
        # The loop closes their sockets in its next turn.
        await asyncio.sleep(0)

    async def _open_socket(self, place: Place | None, host: str, port: int, *, secure: bool) -> HttpConnection:
        looking = self._addresses.get((host, port))
        if looking is None:
            look_up = self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            looking = self._addresses[host, port] = asyncio.ensure_future(look_up)
            looking.add_done_callback(partial(self._keep_addresses, host, port))
        # Other requests wait for it too, and this one may be cancelled.
        addresses = await asyncio.shield(looking)
        sock = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1)
        tls, name = (self._tls, host) if secure else (None, None)
        _, connection = await self._loop.create_connection(
            lambda: self._make(place), sock=sock, ssl=tls, server_hostname=name
        )
        return connection

    async def _tunnel(self, connection: HttpConnection, place: Place, proxy: SplitResult) -> HttpConnection:
        """TLS with the server, through its proxy."""
        server = f"{place.host}:{place.port}"
        lines = {"Host": server, **_make_credentials("Proxy-Authorization", proxy)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        answer = await connection.ask(f"CONNECT {server} HTTP/1.1\r\n{head}\r\n".encode(), b"")
        if not answer.good:
            connection.transport.abort()
            raise BrokenHeadError
        inside = self._make(place)
        connection.hand_over()
        transport = await self._loop.start_tls(connection.transport, inside, self._tls, server_hostname=place.host)
        if transport is None:
            raise BrokenHeadError
        inside.connection_made(transport)
        return inside

    def _make(self, place: Place | None) -> HttpConnection:
        """An idle connection to this host and port; None = there is none."""
        keep = None if place is None else partial(self._keep, place)
        return HttpConnection(self._room, keep, self._open)

    def _keep(self, place: Place, connection: HttpConnection) -> None:
        self._idle.setdefault(place, []).append(connection)
        connection.idle = self._loop.call_later(IDLE_SECONDS, self._drop, place, connection)

    def _keep_addresses(self, host: str, port: int, looked: asyncio.Future[Sequence[AddrInfoType]]) -> None:
        seconds = 0.0 if looked.cancelled() or looked.exception() else NAME_SECONDS
        self._loop.call_later(seconds, self._addresses.pop, (host, port))

    def _drop(self, place: Place, connection: HttpConnection) -> None:
        self._idle[place].remove(connection)
        connection.transport.abort()


def _write_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers]
    if not all(line.isprintable() for line in lines):
        raise BadRequest(_NO_HEADER)
    return "".join([f"{line}\r\n" for line in lines]).encode()


def _make_credentials(header: str, url: SplitResult) -> dict[str, str]:
    """The header for a URL that has a name and a password."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {header: f"Basic {b64encode(pair.encode()).decode()}"}


_SHARED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ssl.SSLContext | Literal[True], Connections]]] = (
    WeakKeyDictionary()
)
"""The open connections of each event loop, by certificates: a connection belongs to one loop, and tests have many
loops."""
