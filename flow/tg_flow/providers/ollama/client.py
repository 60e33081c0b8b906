"""Ollama -> SDK -> socket: only this file imports Ollama's SDK and its HTTP stack.

The SDK only supplies the server's address and the key. Its own reader splits lines at U+0085 and U+2028 within a text,
and treats a stream without its terminal marker as complete. Its own writer opens a local file if an image's data is a
path, and drops the parts of a tool's schema that it does not know.
"""

from typing import cast

import httpx
import ollama

from tg_base.llm import ANSWERS, EMBEDDINGS, MODELS, Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorder = SdkRecorder(keyless=endpoint.key is None)
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else None
    sdk = ollama.AsyncClient(endpoint.base_url, headers=headers, transport=cast(httpx.AsyncBaseTransport, recorder))
    calls = {ANSWERS: lambda: sdk.chat("-"), EMBEDDINGS: lambda: sdk.embed("-"), MODELS: sdk.list}
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx.create_ssl_context)))
