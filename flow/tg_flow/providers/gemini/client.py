"""GoogleAiStudio -> SDK -> socket: the one file that imports Google's SDK and its HTTP stack (seconds of imports)."""

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm.gemini import GeminiConnection, PreparedRequest
from tg_base.llm.http import Failures
from tg_base.llm.http.pool import HttpPool


def connection(model: str, base_url: str, key: str | None) -> GeminiConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    recorded: list[PreparedRequest] = []

    def record(request: httpx.Request) -> httpx.Response:
        if key is None:
            del request.headers["x-goog-api-key"]
        recorded.append(request)
        return httpx.Response(200, request=request, content=b"{}")

    client = genai.Client(
        vertexai=False,
        api_key=key or "none",
        http_options=HttpOptions(
            base_url=base_url, httpx_async_client=httpx.AsyncClient(transport=httpx.MockTransport(record))
        ),
    )
    return GeminiConnection(client, recorded, HttpPool(httpx.create_ssl_context()), Failures(), model)
