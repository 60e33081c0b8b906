"""Mistral -> SDK -> socket: only this file imports Mistral's SDK and its HTTP stack."""

from typing import cast

import httpx2
from mistralai.client import Mistral

from tg_base.llm import ANSWERS, EMBEDDINGS, MODELS, Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorder = SdkRecorder(keyless=endpoint.key is None)
    http = httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, recorder))
    sdk = Mistral(api_key=endpoint.key or "none", server_url=endpoint.base_url, async_client=http)
    calls = {
        ANSWERS: lambda: sdk.chat.stream_async(model="-", messages=[]),
        EMBEDDINGS: lambda: sdk.embeddings.create_async(model="-", inputs="-"),
        MODELS: sdk.models.list_async,
    }
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx2.create_ssl_context)))
