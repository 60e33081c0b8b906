"""OpenAiCompatible -> SDK -> socket: the one file that imports the OpenAI SDK and its HTTP stack (seconds of imports).

The SDK prepares requests (URL, credentials, headers), which stay good for a while; our connections send them and read
the answers.
"""

from typing import Any, TypedDict, cast

import httpx2
import openai
from typing_extensions import override

from tg_base.llm import Endpoint, Method, PreparedConnection, SdkRequest, open_pool
from tg_flow.providers.openai.endpoint import AzureEndpoint


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    client = _client(endpoint)
    options: openai.RequestOptions = {} if endpoint.key else {"headers": {"Authorization": openai.Omit()}}
    # With `stream` and this `cast_to` the SDK hands out the response as it is, whatever its overloads say.
    as_it_is: Any = {"cast_to": httpx2.Response, "stream": True, "stream_cls": openai.AsyncStream[object]}

    async def prepare(method: Method) -> SdkRequest:
        if method == "POST":
            answer = await client.post("/chat/completions", content=b"{}", options=options, **as_it_is)
        else:
            answer = await client.get("/models", options=options, **as_it_is)
        return cast(SdkRequest, answer.request)

    return PreparedConnection(prepare, open_pool(httpx2.create_ssl_context()))


class _Settings(TypedDict):
    """What all of the SDK's clients are told."""

    api_key: str
    max_retries: int
    timeout: None
    http_client: httpx2.AsyncClient
    default_headers: dict[str, str]


def _client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    """The SDK loads parts of itself when they are first used: here, and not in the event loop."""
    settings: _Settings = {
        "api_key": endpoint.key or "none",
        "max_retries": 0,
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
    """Where the SDK sends the requests that it prepares."""

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, request=request)
