"""Ollama -> SDK -> socket: the one file that imports Ollama's SDK and its HTTP stack."""

from functools import partial
from typing import cast

import httpx
import ollama

from tg_base.llm import CapturedConnection, CapturingTransport, Endpoint


class _Client(ollama.AsyncClient):
    """Only what the SDK knows of the server is used: its HTTP client, which has the server's address and our key.

    Its own reading takes U+0085 and U+2028 within a text for ends of lines, takes an end of the stream without its
    terminal marker for a success, and opens the file that an image's data names; its own writing leaves out all of a
    tool's schema that it does not know.
    """

    @property
    def http(self) -> httpx.AsyncClient:
        return cast(httpx.AsyncClient, self._client)


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    transport = CapturingTransport(httpx.create_ssl_context(), keyless=endpoint.key is None)
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else None
    client = _Client(endpoint.base_url, headers=headers, transport=cast(httpx.AsyncBaseTransport, transport))
    http = client.http
    return CapturedConnection(
        lambda body: http.post("/api/chat", json=body), partial(http.get, "/api/tags"), http.aclose
    )
