"""VertexGemini -> SDK -> socket: only this file imports Google's SDK, which takes seconds."""

from typing import cast

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm import PreparedConnection, SdkRecorder, open_pool, share_tls
from tg_base.llm.gemini import find_calls
from tg_vertexai.account import FAILURES, find_account
from tg_vertexai.endpoint import VertexEndpoint


def connect(endpoint: VertexEndpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    owner, recorder = find_account(endpoint), SdkRecorder()
    # Otherwise the SDK makes two TLS contexts for each key, and uses neither.
    tls = share_tls(httpx.create_ssl_context)
    client = genai.Client(
        vertexai=True,
        project=owner.project,
        location=owner.location,
        credentials=owner.credentials,
        http_options=HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, recorder)),
            client_args={"verify": tls},
            async_client_args={"ssl": tls},
        ),
    )
    return PreparedConnection(recorder, find_calls(client, endpoint.model), open_pool(tls), FAILURES)
