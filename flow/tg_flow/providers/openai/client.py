"""OpenAiCompatible -> SDK -> socket: only this file imports OpenAI's SDK and its HTTP stack, which takes seconds.

The SDK prepares requests (URL, credentials, headers), which are reused for a while. Our connections send them and read
the answers.
"""

from functools import partial
from typing import Any, Final, TypedDict, cast

import httpx2
import openai
from typing_extensions import override

from tg_base.llm import (
    Endpoint,
    Method,
    PreparedConnection,
    RoutedConnection,
    SdkRequest,
    open_pool,
    share_tls,
)
from tg_flow.providers.openai.endpoint import AzureEndpoint

ROOT_ROUTES: Final = ("tokenize", "detokenize", "chat_tokenize", "generate", "generate_stream")
"""Routes of vLLM's and TGI's servers beside OpenAI's; all take a POST."""


def connect(endpoint: Endpoint) -> RoutedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    client = _client(endpoint)
    options: openai.RequestOptions = {} if endpoint.key else {"headers": {"Authorization": openai.Omit()}}
    # With `stream` and this `cast_to` the SDK returns the raw response, which its overloads do not declare.
    as_it_is: Any = {"cast_to": httpx2.Response, "stream": True, "stream_cls": openai.AsyncStream[object]}

    async def prepare(method: Method) -> SdkRequest:
        if method == "POST":
            answer = await client.post("/chat/completions", content=b"{}", options=options, **as_it_is)
        else:
            answer = await client.get("/models", options=options, **as_it_is)
        return cast(SdkRequest, answer.request)

    async def prepare_other(url: str, _: Method) -> SdkRequest:
        answer = await client.post(url, content=b"{}", options=options, **as_it_is)
        return cast(SdkRequest, answer.request)

    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    urls = {"embeddings": "/embeddings", "completions": "/completions"}
    urls |= {route: f"{root}/{route}" for route in ROOT_ROUTES}
    pool = open_pool(share_tls(httpx2.create_ssl_context))
    others = {route: PreparedConnection(partial(prepare_other, url), pool) for route, url in urls.items()}
    return RoutedConnection(PreparedConnection(prepare, pool), others)


class _Settings(TypedDict):
    """The arguments common to all clients of the SDK."""

    api_key: str
    max_retries: int
    timeout: None
    http_client: httpx2.AsyncClient
    default_headers: dict[str, str]


def _client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    """Create the client, and make it load its lazy parts here in the thread, not later in the event loop."""
    settings: _Settings = {
        # The SDK is not made without a key. Where there is none, `options` leaves out its header.
        "api_key": endpoint.key or "none",
        # `LlmService` asks again: it alone knows whether anything was shown yet.
        "max_retries": 0,
        # The guard has the clocks.
        "timeout": None,
        "http_client": httpx2.AsyncClient(transport=_Nowhere(), trust_env=False),
        "default_headers": {"Accept": "text/event-stream"},
    }
    client: openai.AsyncOpenAI
    if isinstance(endpoint, AzureEndpoint):
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=endpoint.base_url or "",
            azure_deployment=endpoint.model,
            api_version=endpoint.api_version,
            **settings,
        )
    else:
        client = openai.AsyncOpenAI(base_url=endpoint.base_url, **settings)
    _ = client.auth_headers, client.platform_headers()
    return client


class _Nowhere(httpx2.AsyncBaseTransport):
    """Answers the requests that the SDK prepares, without sending them."""

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, request=request)
