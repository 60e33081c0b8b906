"""Ollama -> SDK -> socket: the one file that imports Ollama's SDK and its HTTP stack."""

from collections.abc import Awaitable
from typing import Any

import httpx
import ollama

from tg_base.llm import Endpoint, HttpAnswer, Method, open_pool


class OllamaConnection(ollama.AsyncClient):
    """The SDK's client, asked for bytes.

    Only what it knows of the server is used. Its own reading takes U+0085 and U+2028 within a text for ends of lines,
    takes an end of the stream without its terminal marker for a success, and opens the file that an image's data names;
    its own writing leaves out all of a tool's schema that it does not know.
    """

    def __init__(self, base_url: str | None, headers: dict[str, str] | None) -> None:
        super().__init__(base_url, headers=headers)
        self._pool = open_pool(httpx.create_ssl_context())

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._answer("POST", "/api/chat", body)

    def models(self) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._answer("GET", "/api/tags", None)

    def forget_key(self) -> None:
        """Send no key, not even the one that the SDK has found in the environment by itself."""
        self._client.headers.pop("Authorization", None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()
        await self._client.aclose()

    def _answer(self, method: Method, path: str, body: dict[str, Any] | None) -> Awaitable[HttpAnswer]:
        request = self._client.build_request(method, path, json=body)
        return self._pool.ask(method, str(request.url), request.headers.multi_items(), request.content or None)


def connect(endpoint: Endpoint) -> OllamaConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    key = endpoint.key
    connection = OllamaConnection(endpoint.base_url, {"Authorization": f"Bearer {key}"} if key else None)
    if key is None:
        connection.forget_key()
    return connection
