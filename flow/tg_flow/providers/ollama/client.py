"""Ollama -> SDK -> socket: only this file imports Ollama's SDK and its HTTP stack."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

import httpx
import ollama

from tg_base.llm import CapturedConnection, CapturingTransport, EmbeddingCall, Endpoint, share_tls


class _Client(ollama.AsyncClient):
    """The SDK's client, of which only the HTTP client is used: it has the server's address and the key.

    The SDK's own reader splits lines at U+0085 and U+2028 within a text, and reports a stream without its terminal
    marker as complete. Its own writer opens a local file if an image's data is a path, and drops the parts of a tool's
    schema that it does not know.
    """

    @property
    def http(self) -> httpx.AsyncClient:
        return cast(httpx.AsyncClient, self._client)


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    transport = CapturingTransport(share_tls(httpx.create_ssl_context), keyless=endpoint.key is None)
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else None
    client = _Client(endpoint.base_url, headers=headers, transport=cast(httpx.AsyncBaseTransport, transport))
    http = client.http

    def post(call: dict[str, Any] | EmbeddingCall) -> Awaitable[object]:
        if isinstance(call, EmbeddingCall):
            return http.post("/api/embed", json=call.body)
        return http.post("/api/chat", json=call)

    return CapturedConnection(post, partial(http.get, "/api/tags"), http.aclose)
