"""OpenAiCompatible -> SDK -> socket: the one file that imports the OpenAI SDK and its HTTP stack (seconds of imports).

The SDK prepares requests (URL, credentials, headers), which stay good for a while; aiohttp sends them and reads the
answers. The SDK's own way to send and read costs about 1 ms more CPU per request and 130 µs more per chunk.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import msgspec
import openai
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from tg_base.provider_errors import retry_after, status_error
from tg_flow.providers.openai_wire import error_code
from tg_schema.errors import IncompleteStream, TgError, Timeout, Unavailable

CONNECT_TIMEOUT = 10.0
"""Seconds to a connection, TLS included; everything after it is timed by the stream's guard."""

PREPARED_FOR = 60.0
"""Seconds that a prepared request is used, so that credentials with an end are renewed by the SDK in time."""

LONGEST_ERROR_BODY = 64 * 1024
"""Bytes read of the body of an error, for its code."""

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
    async def open(cls, base_url: str, key: str | None) -> "OpenAiConnection":
        """Make the client ready; no connection is made before the first request."""
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        client = await asyncio.to_thread(_client, base_url, key)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=_proxy(base_url),
        )
        return cls(client, session, keyless=key is None)

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator["Body"]:
        """Post JSON and enter the answer's body. Leaving before its end closes the socket.

        Raises:
            TgError: there is no answer, or its status is not 2xx; from the closed set, in our own words.
        """
        prepared = self._prepared.get(path)
        if prepared is None or prepared.until < time.monotonic():
            prepared = self._prepared[path] = await self._prepare(path)
        try:
            response = await self._session.post(
                prepared.url, headers=prepared.headers, data=body, allow_redirects=False
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

    async def _prepare(self, path: str) -> Prepared:
        """Let the SDK do all of its work on a request, up to the network."""
        until = time.monotonic() + PREPARED_FOR
        answer = await self._client.post(
            path,
            cast_to=httpx2.Response,
            content=b"{}",
            options=self._options,
            stream=True,
            stream_cls=openai.AsyncStream[object],
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


def _client(base_url: str, key: str | None) -> openai.AsyncOpenAI:
    """Runs in a thread: the SDK loads parts of itself when they are first used."""
    client = openai.AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",
        max_retries=0,
        timeout=None,
        http_client=httpx2.AsyncClient(transport=_Nowhere(), trust_env=False),
        default_headers={"Accept": "text/event-stream", "Accept-Encoding": "identity"},
    )
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
