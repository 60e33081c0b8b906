"""Cohere -> SDK -> socket: only this file imports Cohere's SDK and its HTTP stack."""

from typing import cast

import cohere
import httpx

from tg_base.llm import ANSWERS, EMBEDDINGS, MODELS, Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorder = SdkRecorder(keyless=endpoint.key is None)
    http = httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, recorder))
    sdk = cohere.AsyncClientV2(endpoint.key or "none", base_url=endpoint.base_url, httpx_client=http, max_retries=0)
    calls = {
        # `chat_stream` is a generator function: only the first `anext` makes its request.
        ANSWERS: lambda: anext(sdk.chat_stream(model="-", messages=[])),
        EMBEDDINGS: lambda: sdk.embed(model="-", input_type="search_query"),
        # Cohere's largest page has 1000 entries, so one request lists all models.
        MODELS: lambda: sdk.models.list(endpoint="chat", page_size=1000),
    }
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx.create_ssl_context)))
