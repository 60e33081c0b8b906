"""GoogleAiStudio -> SDK -> socket: the one file that imports Google's SDK and its HTTP stack (seconds of imports)."""

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.wires.gemini_connection import GeminiConnection, PreparedRequest
from tg_base.wires.sdk_response import CONNECT_TIMEOUT, Failures

_FAILURES = Failures(
    slow=(httpx.TimeoutException,), unreachable=(httpx.HTTPError, OSError), broken=(httpx.HTTPError, httpx.StreamError)
)


def connection(model: str, base_url: str, key: str | None) -> GeminiConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    recorded: list[PreparedRequest] = []

    def record(request: httpx.Request) -> httpx.Response:
        recorded.append(request)
        return httpx.Response(200, request=request, content=b"{}")

    client = genai.Client(
        vertexai=False,
        api_key=key,
        http_options=HttpOptions(
            base_url=base_url, httpx_async_client=httpx.AsyncClient(transport=httpx.MockTransport(record))
        ),
    )
    http = httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT), limits=httpx.Limits(max_connections=None)
    )
    return GeminiConnection(client, recorded, http, _FAILURES, model)
