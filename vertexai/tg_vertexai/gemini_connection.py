"""VertexGemini -> SDK -> socket: the one file that imports Google's SDK (seconds of imports)."""

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm.gemini import GeminiConnection, PreparedRequest
from tg_base.llm.http import Failures
from tg_base.llm.http.pool import HttpPool
from tg_vertexai.account import AUTH_ERRORS, TRANSPORT_ERRORS, account

_FAILURES = Failures(unreachable=TRANSPORT_ERRORS, credentials=AUTH_ERRORS)


def connection(
    model: str, base_url: str | None, project: str | None, location: str | None, credentials_file: str | None
) -> GeminiConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    owner = account(project, location, credentials_file)
    recorded: list[PreparedRequest] = []
    http_options = HttpOptions(base_url=base_url, httpx_async_client=_recorder(recorded))
    client = genai.Client(
        vertexai=True,
        project=owner.project,
        location=owner.location,
        credentials=owner.credentials,
        http_options=http_options,
    )
    return GeminiConnection(client, recorded, HttpPool(httpx.create_ssl_context()), _FAILURES, model)


def _recorder(recorded: list[PreparedRequest]) -> httpx.AsyncClient:
    def record(request: httpx.Request) -> httpx.Response:
        recorded.append(request)
        return httpx.Response(200, request=request, content=b"{}")

    return httpx.AsyncClient(transport=httpx.MockTransport(record))
