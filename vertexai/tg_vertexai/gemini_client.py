"""VertexGemini -> SDK -> socket: only this file imports Google's SDK, which takes seconds."""

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm import RoutedConnection, SdkRequest, share_tls
from tg_base.llm.gemini import connect_client
from tg_vertexai.account import FAILURES, find_account
from tg_vertexai.endpoint import VertexEndpoint


def connect(endpoint: VertexEndpoint) -> RoutedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    owner = find_account(endpoint)
    recorded: list[SdkRequest] = []

    def record(request: httpx.Request) -> httpx.Response:
        # `connect_client` takes the request; the SDK gets an empty answer and needs no network.
        recorded.append(request)
        return httpx.Response(200, request=request, content=b"{}")

    recorder = httpx.AsyncClient(transport=httpx.MockTransport(record))
    # Otherwise the SDK makes two TLS contexts for each key, and uses neither.
    tls = share_tls(httpx.create_ssl_context)
    client = genai.Client(
        vertexai=True,
        project=owner.project,
        location=owner.location,
        credentials=owner.credentials,
        http_options=HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=recorder,
            client_args={"verify": tls},
            async_client_args={"ssl": tls},
        ),
    )
    return connect_client(client, recorded, tls, endpoint.model, FAILURES)
