"""HttpTransport -> socket -> HttpTransport: connections of HTTP/1.1, each with one request at a time.

It uses the standard library alone: importing an HTTP client takes longer than all else that a command does before its
first text. Nothing is compressed, no redirect is followed, and no proxy is used.
"""

import asyncio
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import cast
from urllib.parse import quote, urlsplit

from typing_extensions import override

from tg_client.transport.errors import (
    InvalidUrl,
    NoGateway,
    NoHttp,
    NoTls,
    SlowConnection,
    UnknownHost,
    UntrustedGateway,
    WireError,
)
from tg_client.transport.http_body import HttpBody
from tg_schema.errors import BadRequest

MAX_HEAD_BYTES = 64 * 1024
"""Largest head of an answer, with the interim responses (1xx) before it."""
MAX_READ_AHEAD_BYTES = 256 * 1024
"""Bytes that wait for their reader before no more are taken from the socket."""
CONNECT_TIMEOUT_SECONDS = 10.0
"""Timeout of opening a connection."""
IDLE_CONNECTION_SECONDS = 5.0
"""Seconds that a connection is kept for the next request: less than a gateway keeps it, so that none is half closed."""
_BEGINNING = b"HTTP/1."
_STATUS = re.compile("[1-9][0-9]{2}")
_EMPTY = {204, 304}
"""Statuses whose answers have no body."""


class HttpResponse:
    """An answer whose head has come.

    Attributes:
        status: HTTP's.
        headers: by their names in lower case.
        content_type: without parameters.
    """

    def __init__(self, connection: "_Connection", status: int, headers: Mapping[str, str], body: HttpBody) -> None:
        self.status = status
        self.headers = headers
        self.content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._connection: _Connection | None = connection
        self._body = body

    async def read(self) -> bytes:
        """The bytes that have come, at least one; b"" at the body's end.

        Raises:
            WireError: the connection broke before it, or sent what is no body.
        """
        # Closed: there may be another request on the connection by now.
        if self._connection is None:
            raise WireError
        while True:
            part = self._body.take(self._connection.received, ended=self._connection.ended)
            if part or self._body.complete:
                return part
            await self._connection.wait()

    def close(self) -> None:
        """Release the connection; before the body's end this cuts it, which tells the gateway to stop."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(reusable=self._body.complete and self._body.reusable)


class HttpConnections:
    """One gateway's connections: any number at a time, and those that are idle wait for the next requests.

    Args:
        base: the gateway's URL.
        headers: of each request.
    """

    def __init__(self, base: str, headers: Mapping[str, str]) -> None:
        self._parts = urlsplit(base)
        self._headers = dict(headers)
        self._idle: deque[tuple[float, _Connection]] = deque()
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def check_open(self) -> None:
        """Check that requests can be sent, by the loop in which this was made.

        Raises:
            BadRequest: it is closed, or another loop is running.
        """
        if self.closed:
            raise BadRequest("the client is closed: ask inside `async with TgClient(...) as client`")
        # A connection is read by its own loop alone: an answer would never come.
        if asyncio.get_running_loop() is not self._loop:
            raise BadRequest("the client was opened in another event loop: open one of its own in each loop")

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Send a request, and return the answer when its head has come.

        Raises:
            WireError: there is none.
        """
        request = self._make_request(method, url, {**self._headers, **headers}, body)
        connection = self._find_idle() or await self._connect()
        with ExitStack() as cut:
            cut.callback(partial(connection.release, reusable=False))
            # `aclose` has not seen one that was still being opened.
            if self.closed:
                raise WireError
            response = await connection.ask(request)
            cut.pop_all()
        return response

    async def aclose(self) -> None:
        """Close all connections; streams that are still being read get a WireError."""
        self.closed = True
        lost = [connection.lost for connection in self._open]
        for connection in list(self._open):
            # Another loop than theirs closes them too; one that has ended can be told nothing.
            with suppress(RuntimeError):
                connection.release(reusable=False)
        # The transports are closed in the loop's next turns; without them, the interpreter warns of open sockets.
        if lost and asyncio.get_running_loop() is self._loop:
            await asyncio.wait(lost, timeout=1.0)

    def _make_request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
        try:
            path = quote(urlsplit(url).path or "/", safe="/%:@!$&'()*+,;=~-._")
        except UnicodeEncodeError:
            raise InvalidUrl from None
        sent = {"Host": self._host_header(), **headers, "Accept-Encoding": "identity", "Content-Length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body

    def _host_header(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._parts.port is None else f"{host}:{self._parts.port}"

    @property
    def _host(self) -> str:
        host = self._parts.hostname or ""
        try:
            return host if host.isascii() else host.encode("idna").decode("ascii")
        except UnicodeError:
            raise InvalidUrl from None

    def _find_idle(self) -> "_Connection | None":
        now = asyncio.get_running_loop().time()
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < IDLE_CONNECTION_SECONDS and not connection.ended and not connection.received:
                return connection
            connection.release(reusable=False)
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        secure = self._parts.scheme == "https"
        if secure and self._tls is None:
            # Only where it is needed, and not in the loop's thread: it reads all of the system's certificates.
            self._tls = await asyncio.to_thread(_make_tls)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._keep, self._open),
                    self._host,
                    (443 if secure else 80) if self._parts.port is None else self._parts.port,
                    ssl=self._tls,
                    # One address after the other: a race of them leaves the loser's socket open in Python 3.11.
                )
        except TimeoutError:
            raise SlowConnection from None
        except ssl.SSLCertVerificationError:
            raise UntrustedGateway from None
        except ssl.SSLError:
            raise NoTls from None
        except socket.gaierror:
            raise UnknownHost from None
        except OSError:
            raise NoGateway from None
        except ValueError:
            # Raised for invalid host names: asyncio encodes them as IDNA, and the system refuses NUL.
            raise InvalidUrl from None
        return connection

    def _keep(self, connection: "_Connection") -> bool:
        now = asyncio.get_running_loop().time()
        # The newest is used first, so the oldest of a burst of requests would stay for good.
        while self._idle and now - self._idle[0][0] > IDLE_CONNECTION_SECONDS:
            self._idle.popleft()[1].release(reusable=False)
        if not self.closed:
            self._idle.append((now, connection))
        return not self.closed


class _Connection(asyncio.Protocol):
    """One socket. What comes is buffered, and not more of it than `MAX_READ_AHEAD_BYTES`.

    Attributes:
        received: the bytes that nobody has taken yet.
        ended: whether nothing more comes.
        lost: done when the socket is closed.
    """

    def __init__(self, keep: "Callable[[_Connection], bool]", open_ones: "set[_Connection]") -> None:
        self.received = bytearray()
        self.ended = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keep = keep
        self._open = open_ones
        self._paused = False
        self._news: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > MAX_READ_AHEAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    @override
    def eof_received(self) -> None:
        self.ended = True
        self._wake()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._open.discard(self)
        if not self.lost.done():
            self.lost.set_result(None)
        self._wake()

    async def wait(self) -> None:
        """Return once more has come, or nothing more will.

        Raises:
            WireError: nothing more will, as was seen before.
        """
        if self.ended:
            raise WireError
        self._resume()
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    async def ask(self, request: bytes) -> HttpResponse:
        """Send a request; its body need not have left when the answer comes, which may be a refusal of its size."""
        self._transport.write(request)
        size = 0
        while True:
            head = await self._read_head(MAX_HEAD_BYTES - size)
            size += len(head)
            status, headers = _parse_head(head)
            if status >= 200:
                break
        return HttpResponse(self, status, headers, HttpBody(headers, empty=status in _EMPTY))

    def release(self, *, reusable: bool) -> None:
        """Keep it for the next request if it is reusable and has sent the last one, or cut it."""
        unsent = not self.ended and self._transport.get_write_buffer_size()
        if reusable and not (unsent or self.ended) and self._keep(self):
            # While reading is paused, its end would not be seen.
            self._resume()
            return
        self._transport.abort()

    async def _read_head(self, limit: int) -> bytes:
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            if len(self.received) > limit or not _BEGINNING.startswith(self.received[: len(_BEGINNING)]):
                raise NoHttp
            await self.wait()
        if end > limit:
            raise NoHttp
        head = bytes(self.received[:end])
        del self.received[: end + 4]
        return head

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers (RFC 9112, sections 4 and 5); the values of one name are joined by commas."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest.partition(" ")[0]
    # 101 changes the protocol, which nobody asked for: no answer would follow it.
    if version not in {"HTTP/1.0", "HTTP/1.1"} or not _STATUS.fullmatch(status) or status == "101":
        raise NoHttp
    headers: dict[str, str] = {"connection": "close"} if version == "HTTP/1.0" else {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not name or name != name.strip():
            raise NoHttp
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(status), headers


def _make_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
