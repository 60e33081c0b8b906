"""GoogleAiStudio -> SDK -> socket: only this file imports Google's SDK and its HTTP stack, which takes seconds."""

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm import Endpoint, RoutedConnection, SdkRequest, share_tls
from tg_base.llm.gemini import connect_client


def connect(endpoint: Endpoint) -> RoutedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorded: list[SdkRequest] = []

    def record(request: httpx.Request) -> httpx.Response:
        # The SDK refuses to be created without a key, so it gets a placeholder, which must not be sent.
        if endpoint.key is None:
            del request.headers["x-goog-api-key"]
        recorded.append(request)
        return httpx.Response(200, request=request, content=b"{}")

    recorder = httpx.AsyncClient(transport=httpx.MockTransport(record))
    # Otherwise the SDK makes two TLS contexts for each key, and uses neither.
    tls = share_tls(httpx.create_ssl_context)
    client = genai.Client(
        vertexai=False,
        api_key=endpoint.key or "none",
        http_options=HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=recorder,
            client_args={"verify": tls},
            async_client_args={"ssl": tls},
        ),
    )
    return connect_client(client, recorded, tls, endpoint.model)
