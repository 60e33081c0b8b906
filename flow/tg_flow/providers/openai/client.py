"""OpenAiCompatible -> SDK -> socket: the one file that imports the OpenAI SDK and its HTTP stack (seconds of imports).

The SDK prepares requests (URL, credentials, headers), which stay good for a while; our connections send them and read
the answers.
"""

import asyncio
import time
from typing import TypedDict, cast

import httpx2
import msgspec
import openai
from typing_extensions import override
from yarl import URL

from tg_base.llm.http import HttpAnswer
from tg_base.llm.http.pool import HttpPool, Method
from tg_flow.providers.openai.endpoint import Endpoint

PREPARED_SECONDS = 60.0
"""Seconds that a prepared request is used, so that credentials with an end are renewed by the SDK in time."""


class Prepared(msgspec.Struct, frozen=True):
    """All of a request but its body, and until when (on the monotonic clock) it may be used."""

    url: URL
    headers: tuple[tuple[str, str], ...]
    until: float


class OpenAiConnection:
    """The SDK's client for one provider, and one pool of connections to it."""

    def __init__(self, client: openai.AsyncOpenAI, pool: HttpPool, *, keyless: bool) -> None:
        self._client = client
        self._pool = pool
        self._prepared: dict[str, Prepared] = {}
        self._options: openai.RequestOptions = {"headers": {"Authorization": openai.Omit()}} if keyless else {}

    @classmethod
    async def open(cls, endpoint: Endpoint) -> "OpenAiConnection":
        """Make the client ready; no connection is made before the first request."""
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        client = await asyncio.to_thread(_client, endpoint)
        return cls(client, HttpPool(context), keyless=endpoint.key is None)

    async def post(self, body: bytes) -> HttpAnswer:
        """Ask for an answer as a stream; any status is an answer. Raises TgError where there is none."""
        return await self._send("POST", "/chat/completions", body)

    async def models(self) -> HttpAnswer:
        """Ask for the list of models; any status is an answer. Raises as `post`."""
        return await self._send("GET", "/models", None)

    async def _send(self, method: Method, path: str, body: bytes | None) -> HttpAnswer:
        prepared = self._prepared.get(path)
        if prepared is None or prepared.until < time.monotonic():
            prepared = self._prepared[path] = await self._prepare(method, path)
        answer = await self._pool.ask(method, prepared.url, prepared.headers, body)
        if not answer.good:
            self._prepared.pop(path, None)
        return answer

    async def _prepare(self, method: Method, path: str) -> Prepared:
        """Let the SDK do all of its work on a request, up to the network."""
        until = time.monotonic() + PREPARED_SECONDS
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
        return Prepared(URL(str(request.url), encoded=True), tuple(request.headers.multi_items()), until)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()
        await self._client.close()


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
        "default_headers": {"Accept": "text/event-stream"},
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


class _Nowhere(httpx2.AsyncBaseTransport):
    """Where the SDK sends the requests that it prepares."""

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, request=request)
