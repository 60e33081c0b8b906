"""Mistral -> SDK -> socket: only this file imports Mistral's SDK and its HTTP stack."""

from collections.abc import Awaitable
from typing import Any, cast

import httpx2
from mistralai.client import Mistral

from tg_base.llm import CapturedConnection, CapturingTransport, EmbeddingCall, Endpoint, share_tls


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request.

    Answers are captured because the SDK's own reader hides the details of an error within a stream.
    """
    transport = CapturingTransport(share_tls(httpx2.create_ssl_context), keyless=endpoint.key is None)
    http = httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, transport))
    sdk = Mistral(api_key=endpoint.key or "none", server_url=endpoint.base_url, async_client=http)

    def post(call: dict[str, Any] | EmbeddingCall) -> Awaitable[object]:
        if isinstance(call, EmbeddingCall):
            return sdk.embeddings.create_async(**call.body)
        return sdk.chat.stream_async(**call)

    return CapturedConnection(post, sdk.models.list_async, http.aclose)
