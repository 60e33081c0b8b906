"""Provider's request -> socket: pooled connections with limits, so that a hostile server cannot starve other streams.

Bodies are never decompressed, little is read ahead, and headers are bounded. It is built on aiohttp: the SDKs' own
HTTP clients cost about 1 ms more CPU per request and 130 µs more per chunk.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from types import MappingProxyType
from typing import Final, Literal
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from tg_base.llm.http.connections import MAX_HEAD_BYTES, READ_BYTES, UPGRADE, Body, Connector, EndlessHeadError
from tg_base.llm.http.failures import SLOW, UNREACHABLE, UNREACHABLE_BY_PROXY, unreachable
from tg_base.llm.http.prepared_post import CONNECT_TIMEOUT, PreparedPost, prepare_post, show_place
from tg_base.llm.http.response import Method
from tg_base.llm.http.shared_sessions import SharedSessions
from tg_base.llm.http.stream_reader import Take
from tg_schema.errors import ProtocolError, Timeout, Unavailable

MAX_WHOLE_BYTES = 128 * 1024
"""Bytes of a request's body up to which it is written at once."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

_ENDLESS = f"the provider sent {MAX_HEAD_BYTES} bytes of headers or interim responses, and no answer; check base_url"
_ENCODED = "the provider compresses its answers although nobody asked for that; switch it off there, or in its proxy"

_UPGRADED = "the provider switched to another protocol although nobody asked for that; check base_url"
_CLOSED = "the model was closed, and its connections to the provider with it; ask again"

_OURS = ("accept-encoding", "connection", "content-length", "host", "transfer-encoding")


class PoolAnswer:
    """See `HttpAnswer`.

    Args:
        status: of the answer.
        headers: of the answer.
        body: its reader.
        close: closes the connection if the body has not ended.

    Attributes:
        good: whether the status is 2xx.
        content_type: the media type without parameters.
        encoded: whether the body is compressed.
    """

    __slots__ = ("_body", "close", "content_type", "encoded", "good", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str], body: aiohttp.StreamReader, close: Callable[[], None]
    ) -> None:
        self.status = status
        self.headers = headers
        self.good = 200 <= status < 300
        # Not aiohttp's own, which parses the parameters too, and keeps 1.5 KiB until the answer's end.
        self.content_type = _media_type(headers.get("Content-Type", ""))
        self.encoded = "Content-Encoding" in headers and (
            headers["Content-Encoding"].strip().lower() not in {"", "identity"}
        )
        self.close = close
        self._body = body

    @property
    def ended(self) -> bool:
        """See `HttpAnswer`."""
        return self._body.is_eof()

    def listen(self, take: Take) -> None:
        """See `HttpAnswer`."""
        if isinstance(self._body, Body):
            self._body.listen(take)

    @property
    def read(self) -> Callable[[], Awaitable[bytes]]:
        """See `HttpAnswer`."""
        # Return the reader's own awaitable, which saves a call per read. aiohttp's empty body has no `take`.
        return self._body.take if isinstance(self._body, Body) else self._body.readany

    def drop_head(self) -> None:
        """See `HttpAnswer`."""
        self.headers = _NO_HEADERS


class HttpTarget(msgspec.Struct, frozen=True, eq=False):
    """Where requests go: everything of a request but its method and body.

    Attributes:
        url: of the server.
        headers: without those that aiohttp adds.
        proxy: on the way to it.
        post: what its small POST requests have in common; None = aiohttp writes each of them.
    """

    url: URL
    headers: CIMultiDict[str]
    proxy: str | None
    post: PreparedPost | None

    @override
    def __repr__(self) -> str:
        # The headers have a key.
        return f"HttpTarget({show_place(self.url)})"


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
        self._closed = False
        self._proxies: dict[tuple[str, str], str | None] = {}

    async def ask(self, method: Method, url: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> PoolAnswer:
        """Send a single request to a target of its own. Arguments as for `target`, the rest as for `send`."""
        return await self.send(method, self.target(url, headers), body)

    def target(self, url: str, headers: Iterable[tuple[str, str]]) -> HttpTarget:
        """The common part of many requests, made once: it is a good part of the cost of sending one.

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
        proxy = self._proxy(place)
        return HttpTarget(place, asked, proxy, None if proxy else prepare_post(self._enter_session(), place, asked))

    async def send(self, method: Method, target: HttpTarget, body: bytes | None) -> PoolAnswer:
        """Send a request and return the answer, whatever its status.

        Args:
            method: the HTTP method.
            target: of this pool.
            body: None = no body.

        Raises:
            Timeout: no connection within `CONNECT_TIMEOUT_SECONDS`.
            Unavailable: the connection was refused or broke, or the pool is closed.
            ProtocolError: the headers exceed `MAX_HEAD_BYTES`, a 2xx answer is compressed, or it is an upgrade (101).
        """
        if self._closed:
            raise Unavailable(_CLOSED)
        post = target.post
        try:
            if post is not None and method == "POST" and body is not None and len(body) <= MAX_WHOLE_BYTES:
                message, posted = await post.send(body)
                answer = PoolAnswer(message.code, message.headers, posted.body, posted.close)
            else:
                answer = await self._request(method, target, body)
        except EndlessHeadError:
            raise ProtocolError(_ENDLESS) from None
        except (aiohttp.ServerTimeoutError, TimeoutError):
            raise Timeout(SLOW) from None
        except (aiohttp.ClientError, HttpProcessingError, OSError):
            raise unreachable(UNREACHABLE_BY_PROXY if target.proxy else UNREACHABLE) from None
        if answer.status == UPGRADE:
            answer.close()
            raise ProtocolError(_UPGRADED)
        if answer.good and answer.encoded:
            answer.close()
            raise ProtocolError(_ENCODED)
        return answer

    async def _request(self, method: Method, target: HttpTarget, body: bytes | None) -> PoolAnswer:
        """Send by aiohttp's session, which knows proxies, writes large bodies in steps, and retries if that is safe."""
        response = await self._enter_session().request(
            method,
            target.url,
            headers=target.headers,
            data=_in_steps(body),
            allow_redirects=False,
            proxy=target.proxy,
        )
        return PoolAnswer(response.status, response.headers, response.content, response.close)

    async def aclose(self) -> None:
        """Close the connections, unless another pool uses them. Safe to call twice."""
        self._closed = True
        if self._session is not None:
            self._session = None
            await _SESSIONS.leave(self._tls)

    def _enter_session(self) -> aiohttp.ClientSession:
        # Otherwise the session would stay open for good, because nobody leaves twice.
        if self._closed:
            raise Unavailable(_CLOSED)
        if self._session is None:
            self._session = _SESSIONS.enter(self._tls)
        return self._session

    def _proxy(self, url: URL) -> str | None:
        """The environment's proxy for a server; cached, because each lookup scans the environment."""
        if not self._proxied:
            return None
        server = (url.scheme, url.host or "")
        if server not in self._proxies:
            self._proxies[server] = None if proxy_bypass(server[1]) else getproxies().get(server[0])
        return self._proxies[server]


# A provider's answers nearly always have the same header.
@lru_cache(64)
def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _in_steps(body: bytes | None) -> bytes | BytesIO | None:
    """A large body as a file, which is written piece by piece, with turns of the event loop between them."""
    return BytesIO(body) if body is not None and len(body) > MAX_WHOLE_BYTES else body


def _open_session(tls: ssl.SSLContext | Literal[True]) -> aiohttp.ClientSession:
    # No limit here, because the services' capacities bound the requests. No cookies, because all customers and models
    # share the session.
    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=tls),
        timeout=CONNECT_TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BYTES,
    )


_SESSIONS: Final = SharedSessions(_open_session)
