"""Ollama -> SDK -> socket: the one file that imports Ollama's SDK and its HTTP stack."""

from collections.abc import Awaitable
from typing import Any

import httpx
import ollama
from yarl import URL

from tg_base.llm.http import Failures, HttpAnswer
from tg_base.llm.http.pool import HttpPool, Method


class OllamaConnection(ollama.AsyncClient):
    """The SDK's client, asked for bytes.

    Only what it knows of the server is used. Its own reading takes U+0085 and U+2028 within a text for ends of lines,
    takes an end of the stream without its terminal marker for a success, and opens the file that an image's data names;
    its own writing leaves out all of a tool's schema that it does not know.
    """

    failures = Failures()

    def __init__(self, base_url: str | None, headers: dict[str, str] | None) -> None:
        super().__init__(base_url, headers=headers)
        self._pool = HttpPool(httpx.create_ssl_context())

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """Ask for an answer as a stream; any status is an answer."""
        return self._answer("POST", "/api/chat", body)

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer."""
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
        url = URL(str(request.url), encoded=True)
        return self._pool.ask(method, url, request.headers.multi_items(), request.content or None)


def connection(base_url: str | None, key: str | None) -> OllamaConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    made = OllamaConnection(base_url, {"Authorization": f"Bearer {key}"} if key else None)
    if key is None:
        made.forget_key()
    return made
