"""OpenAiCompatible -> SDK -> socket: the one file that imports the OpenAI SDK and its HTTP stack (seconds of imports).

The SDK prepares requests (URL, credentials, headers), which stay good for a while; aiohttp sends them and reads the
answers. The SDK's own way to send and read costs about 1 ms more CPU per request and 130 µs more per chunk.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, TypedDict, cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import msgspec
import openai
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from tg_base.provider_errors import retry_after, status_error
from tg_flow.providers.openai_endpoint import Endpoint
from tg_flow.providers.openai_wire import error_code
from tg_schema.errors import IncompleteStream, ProtocolError, TgError, Timeout, Unavailable

_Method = Literal["GET", "POST"]

CONNECT_TIMEOUT = 10.0
"""Seconds to a connection, TLS included; everything after it is timed by the stream's guard."""

PREPARED_FOR = 60.0
"""Seconds that a prepared request is used, so that credentials with an end are renewed by the SDK in time."""

LONGEST_ERROR_BODY = 64 * 1024
"""Bytes read of the body of an error, for its code."""

LIST_PATIENCE = 15.0
"""Seconds that a list of models may take."""

LONGEST_LIST = 4 * 1024 * 1024
"""Bytes of a list of models."""

ERROR_PATIENCE = 2.0
"""Seconds that the body of an error may take; its status is known, and says enough."""

_UNREACHABLE = "the provider cannot be reached; check its base_url, the network and whether it runs"
_BROKEN = "the connection to the provider broke before the answer was complete; ask again"
_SLOW = f"the provider did not take a connection within {CONNECT_TIMEOUT:g} s"


class Prepared(msgspec.Struct, frozen=True):
    """All of a request but its body, and until when (on the monotonic clock) it may be used."""

    url: URL
    headers: CIMultiDict[str]
    until: float


class OpenAiConnection:
    """The SDK's client for one provider, and one pool of connections to it."""

    def __init__(self, client: openai.AsyncOpenAI, session: aiohttp.ClientSession, *, keyless: bool) -> None:
        self._client = client
        self._session = session
        self._prepared: dict[str, Prepared] = {}
        self._options: openai.RequestOptions = {"headers": {"Authorization": openai.Omit()}} if keyless else {}

    @classmethod
    async def open(cls, endpoint: Endpoint) -> "OpenAiConnection":
        """Make the client ready; no connection is made before the first request."""
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        client = await asyncio.to_thread(_client, endpoint)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=_proxy(endpoint.base_url),
        )
        return cls(client, session, keyless=endpoint.key is None)

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator["Body"]:
        """Post JSON and enter the answer's body. Leaving before its end closes the socket.

        Raises:
            TgError: there is no answer, or its status is not 2xx; from the closed set, in our own words.
        """
        async with self._answered("POST", path, body) as received:
            yield received

    async def get(self, path: str) -> bytes:
        """The whole body of the answer to a small question, in at most `LIST_PATIENCE` seconds.

        Raises:
            TgError: as `post`, or the body is larger than `LONGEST_LIST`.
        """
        whole = bytearray()
        try:
            async with asyncio.timeout(LIST_PATIENCE), self._answered("GET", path, None) as body:
                while part := await body.read():
                    whole += part
                    if len(whole) > LONGEST_LIST:
                        raise ProtocolError("the provider's list is too long to be one; check base_url")
        except TimeoutError:
            raise Timeout(f"the provider did not answer within {LIST_PATIENCE:g} s") from None
        return bytes(whole)

    @asynccontextmanager
    async def _answered(self, method: _Method, path: str, body: bytes | None) -> AsyncIterator["Body"]:
        prepared = self._prepared.get(path)
        if prepared is None or prepared.until < time.monotonic():
            prepared = self._prepared[path] = await self._prepare(method, path)
        try:
            response = await self._session.request(
                method, prepared.url, headers=prepared.headers, data=body, allow_redirects=False
            )
        except (aiohttp.ServerTimeoutError, TimeoutError):
            raise Timeout(_SLOW) from None
        except (aiohttp.ClientError, OSError):
            raise Unavailable(_UNREACHABLE) from None
        try:
            if not 200 <= response.status < 300:
                self._prepared.pop(path, None)
                raise await _refused(response)
            yield Body(response)
        finally:
            response.close()

    async def _prepare(self, method: _Method, path: str) -> Prepared:
        """Let the SDK do all of its work on a request, up to the network."""
        until = time.monotonic() + PREPARED_FOR
        prepare = self._client.post if method == "POST" else self._client.get
        content = {"content": b"{}"} if method == "POST" else {}
        answer = await prepare(
            path,
            cast_to=httpx2.Response,
            options=self._options,
            stream=True,
            stream_cls=openai.AsyncStream[object],
            **content,
        )
        # With `stream` and this `cast_to` the SDK hands out the response as it is, whatever its overloads say.
        request = cast(httpx2.Response, answer).request
        headers = CIMultiDict(request.headers.multi_items())
        for name in ("content-length", "host"):
            headers.popall(name, None)
        return Prepared(URL(str(request.url), encoded=True), headers, until)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._client.close()


class Body:
    """The body of an answer, as it comes from the socket."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._read = response.content.readany
        self.content_type = response.content_type

    async def read(self) -> bytes:
        """What has arrived, at least one byte; nothing at the body's end.

        Raises:
            IncompleteStream: the connection broke.
        """
        try:
            return await self._read()
        except (aiohttp.ClientError, OSError):
            raise IncompleteStream(_BROKEN) from None


async def _refused(response: aiohttp.ClientResponse) -> TgError:
    """The error for a status that is not 2xx. Nothing of the body's text is passed on: it may hold anything."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_PATIENCE):
            while len(body) < LONGEST_ERROR_BODY and (part := await response.content.readany()):
                body += part
    except (aiohttp.ClientError, OSError):
        pass
    return status_error(response.status, error_code(body), retry_after(response.headers))


class _Settings(TypedDict):
    """What all of the SDK's clients are told."""

    api_key: str
    max_retries: int
    timeout: None
    http_client: httpx2.AsyncClient
    default_headers: dict[str, str]


def _client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    """Runs in a thread: the SDK loads parts of itself when they are first used."""
    settings: _Settings = {
        "api_key": endpoint.key or "none",
        "max_retries": 0,
        "timeout": None,
        "http_client": httpx2.AsyncClient(transport=_Nowhere(), trust_env=False),
        "default_headers": {"Accept": "text/event-stream", "Accept-Encoding": "identity"},
    }
    client: openai.AsyncOpenAI
    if endpoint.deployment:
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=endpoint.base_url,
            azure_deployment=endpoint.deployment,
            api_version=endpoint.api_version,
            **settings,
        )
    else:
        client = openai.AsyncOpenAI(base_url=endpoint.base_url, **settings)
    _ = client.auth_headers, client.platform_headers()
    return client


def _proxy(base_url: str) -> str | None:
    """The environment's proxy for this provider, looked up once and not for each request."""
    url = URL(base_url)
    if proxy_bypass(url.host or ""):
        return None
    return getproxies().get(url.scheme)


class _Nowhere(httpx2.AsyncBaseTransport):
    """Where the SDK sends the requests that it prepares."""

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, request=request)
