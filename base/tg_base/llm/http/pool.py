"""Provider's request -> socket: pooled connections with limits, so that a hostile server cannot starve other streams.

Bodies are never decompressed, little is read ahead, and headers are bounded. It is built on aiohttp: the SDKs' own
HTTP clients cost about 1 ms more CPU per request and 130 µs more per chunk.
"""

import asyncio
import ssl
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final, Literal
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from tg_base.llm.http.failures import BROKEN, CONNECT_TIMEOUT_SECONDS, SLOW, UNREACHABLE
from tg_base.llm.http.response import Method
from tg_base.llm.http.shared_sessions import SharedSessions
from tg_schema.errors import IncompleteStream, ProtocolError, Timeout, Unavailable

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of an answer's headers, including those of all interim responses (1xx)."""

READ_BYTES = 16 * 1024
"""Bytes of one read. aiohttp buffers twice as many, then it stops reading until the buffer is consumed."""

MAX_WHOLE_BYTES = 128 * 1024
"""Bytes of a request's body up to which it is written at once."""

_HEAD_PART = 4 * 1024

_ENDLESS = f"the provider sent {MAX_HEAD_BYTES} bytes of headers or interim responses, and no answer; check base_url"
_ENCODED = "the provider compresses its answers although nobody asked for that; switch it off there, or in its proxy"

_OURS = ("accept-encoding", "connection", "content-length", "host", "transfer-encoding")


class PoolAnswer:
    """See `HttpAnswer`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.good = 200 <= response.status < 300
        # Not aiohttp's own: it parses the parameters too, and keeps 1.5 KiB for as long as the answer takes.
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.encoded = response.headers.get("Content-Encoding", "").strip().lower() not in {"", "identity"}
        self._response = response
        content = response.content
        # aiohttp's empty body stays what it is.
        self._take = content.take if isinstance(content, _Body) else content.readany

    async def read(self) -> bytes:
        """See `HttpAnswer`."""
        try:
            return await self._take()
        except (aiohttp.ClientError, OSError):
            raise IncompleteStream(BROKEN) from None

    def close(self) -> None:
        """See `HttpAnswer`."""
        self._response.close()


class HttpTarget(msgspec.Struct, frozen=True, eq=False):
    """Where requests go: all of them but their methods and bodies."""

    url: URL
    headers: CIMultiDict[str]
    proxy: str | None


class HttpPool:
    """Created in any thread; used and closed on one loop. It connects at the first request.

    Pools with the same certificates share their connections, which are closed when the last of these pools is.

    Args:
        tls: the trusted certificates; True = those of the system.
        proxied: whether the proxies that the environment names are used.
    """

    def __init__(self, tls: ssl.SSLContext | Literal[True] = True, *, proxied: bool = True) -> None:
        self._tls = tls
        self._proxied = proxied
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[tuple[str, str], str | None] = {}

    async def ask(self, method: Method, url: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> PoolAnswer:
        """Send a single request to a target of its own. Arguments as for `target`, the rest as for `send`."""
        return await self.send(method, self.target(url, headers), body)

    def target(self, url: str, headers: Iterable[tuple[str, str]]) -> HttpTarget:
        """What many requests have in common; made once for them, since it costs a good part of sending one.

        Args:
            url: already encoded, as an SDK does it.
            headers: those in `_OURS` are replaced.
        """
        # yarl would otherwise normalize the path and query that the SDK has encoded for its API.
        place = URL(url, encoded=True)
        asked = CIMultiDict(headers)
        for name in _OURS:
            asked.popall(name, None)
        # A compressed body may inflate to any size, and inflating costs each chunk time.
        asked["Accept-Encoding"] = "identity"
        return HttpTarget(place, asked, self._proxy(place))

    async def send(self, method: Method, target: HttpTarget, body: bytes | None) -> PoolAnswer:
        """Send a request and return the answer, whatever its status.

        Args:
            method: the HTTP method.
            target: of this pool.
            body: None = no body.

        Raises:
            Timeout: no connection within `CONNECT_TIMEOUT_SECONDS`.
            Unavailable: the connection was refused or broke.
            ProtocolError: the headers exceed `MAX_HEAD_BYTES`, or a 2xx answer is compressed.
        """
        try:
            if self._session is None:
                self._session = _SESSIONS.enter(self._tls)
            response = await self._session.request(
                method,
                target.url,
                headers=target.headers,
                data=_in_steps(body),
                allow_redirects=False,
                proxy=target.proxy,
            )
        except _EndlessHeadError:
            raise ProtocolError(_ENDLESS) from None
        except (aiohttp.ServerTimeoutError, TimeoutError):
            raise Timeout(SLOW) from None
        except (aiohttp.ClientError, OSError):
            raise Unavailable(UNREACHABLE) from None
        answer = PoolAnswer(response)
        if answer.good and answer.encoded:
            answer.close()
            raise ProtocolError(_ENCODED)
        return answer

    async def aclose(self) -> None:
        """Close the connections, unless another pool uses them. Safe to call twice."""
        if self._session is not None:
            self._session = None
            await _SESSIONS.leave(self._tls)

    def _proxy(self, url: URL) -> str | None:
        """The environment's proxy for a server; cached, because each lookup scans the environment."""
        if not self._proxied:
            return None
        server = (url.scheme, url.host or "")
        if server not in self._proxies:
            self._proxies[server] = None if proxy_bypass(server[1]) else getproxies().get(server[0])
        return self._proxies[server]


def _in_steps(body: bytes | None) -> bytes | BytesIO | None:
    """A large body as a file, which is written piece by piece, with turns of the event loop between them."""
    return BytesIO(body) if body is not None and len(body) > MAX_WHOLE_BYTES else body


def _open_session(tls: ssl.SSLContext | Literal[True]) -> aiohttp.ClientSession:
    # No limit here, because the services' capacities bound the requests. No total timeout, because the guard times the
    # content. No cookies, because all customers and models share the session.
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BYTES,
    )


_SESSIONS: Final = SharedSessions(_open_session)


class _EndlessHeadError(aiohttp.ClientError):
    """The headers of an answer exceed `MAX_HEAD_BYTES`."""


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector, with connections that limit their reads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # All connections read into the same bytes, which are copied before the next one reads: at 16 KiB for each,
        # 4,096 streams would hold 64 MiB.
        room = memoryview(bytearray(READ_BYTES))
        # aiohttp has no public way to choose the protocol of its connections. A test fails if an upgrade stops using
        # this private factory.
        self._factory: Any = lambda: _Handler(self._loop, room)


class _SmallReads(asyncio.BufferedProtocol):
    """Socket -> handler, in small reads: an event loop reads up to 256 KiB, which would all be parsed in one turn."""

    def __init__(self, handler: "_Handler", room: memoryview) -> None:
        self._handler = handler
        self._room = room
        # The loop calls these callbacks on this object; they go to aiohttp's handler without an extra call each.
        self.pause_writing = handler.pause_writing  # type: ignore[method-assign]
        self.resume_writing = handler.resume_writing  # type: ignore[method-assign]
        self.eof_received = handler.eof_received  # type: ignore[method-assign]
        self.connection_lost = handler.connection_lost  # type: ignore[method-assign]

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._handler.data_received(bytes(self._room[:nbytes]))


class _Body(aiohttp.StreamReader):
    """The reader of aiohttp, without its list of where HTTP's chunks end, which costs a quarter of a small read.

    aiohttp's parser makes its readers itself; `_Handler` turns each into one of these.
    """

    __slots__ = ()

    @override
    def begin_http_chunk_receiving(self) -> None:
        pass

    @override
    def end_http_chunk_receiving(self) -> None:
        pass

    @override
    def feed_data(self, data: bytes, size: int = 0) -> bool:
        # For a reader, b"" is the end.
        if not data:
            return False
        buffer = self._buffer
        buffer.append(data)
        self._size += len(data)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._size > self._high_water or len(buffer) > self._high_water_chunks:
            self._protocol.pause_reading()
        return False

    async def take(self) -> bytes:
        """As `readany`, and raises a ClientError where that takes a closed connection for a defect."""
        if self._exception is not None:
            raise self._exception
        buffer = self._buffer
        while not buffer and not self._eof:
            if not self._protocol.connected:
                raise aiohttp.ClientConnectionError
            waiter = self._waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        data = buffer.popleft() if len(buffer) == 1 else b"".join(buffer)
        buffer.clear()
        self._size = 0
        self._protocol.resume_reading()
        return data


class _Handler(ResponseHandler):
    """aiohttp's handler with a limit on headers. For bodies it pauses reading by itself when its buffer is full."""

    def __init__(self, loop: asyncio.AbstractEventLoop, room: memoryview) -> None:
        super().__init__(loop)
        self._head_bytes: int | None = None
        self._room = room

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Only a BufferedProtocol decides how much the loop reads at once.
        transport.set_protocol(_SmallReads(self, self._room))

    @override
    def data_received(self, data: bytes) -> None:
        if self._head_bytes is None:
            ResponseHandler.data_received(self, data)
            return
        # In small parts, because the parser tells only between two calls whether the headers have ended.
        while self._head_bytes is not None and data and self.exception() is None:
            part, data = data[:_HEAD_PART], data[_HEAD_PART:]
            self._head_bytes += len(part)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.set_exception(_EndlessHeadError())
                if self.transport is not None:
                    self.transport.abort()
                return
            super().data_received(part)
        if self._head_bytes is None and data:
            super().data_received(data)

    @override
    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp calls it after each read of a body, and then parses once more what is not there: a tenth of a chunk.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @override
    def set_response_params(self, **params: Any) -> None:
        self._head_bytes = 0
        super().set_response_params(**params)

    @override
    def feed_data(self, data: Any, size: int = 0) -> None:
        message, body = data
        # Interim responses (1xx) arrive here too; an endless series of them must keep counting.
        if message.code >= 200:
            self._head_bytes = None
            if type(body) is aiohttp.StreamReader:
                body.__class__ = _Body
        super().feed_data(data, size)
