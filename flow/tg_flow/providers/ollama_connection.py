"""Ollama -> SDK -> socket: the one file that imports Ollama's SDK and its HTTP stack."""

from collections.abc import Awaitable
from typing import Any

import httpx
import ollama

from tg_base.wires.sdk_response import CONNECT_TIMEOUT, Failures, Response


class OllamaConnection(ollama.AsyncClient):
    """The SDK's client, asked for bytes.

    Only its way to the server is used. Its own reading takes U+0085 and U+2028 within a text for ends of lines, takes
    an end of the stream without its terminal marker for a success, and opens the file that an image's data names; its
    own writing leaves out all of a tool's schema that it does not know.
    """

    failures = Failures(
        slow=(httpx.ConnectTimeout, httpx.PoolTimeout), unreachable=(httpx.HTTPError,), broken=(httpx.HTTPError,)
    )

    def post(self, body: dict[str, Any]) -> Awaitable[Response]:
        """Ask for an answer as a stream; any status is an answer."""
        return self._answer("POST", "/api/chat", body)

    def models(self) -> Awaitable[Response]:
        """Ask for the list of models; any status is an answer."""
        return self._answer("GET", "/api/tags", None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> Awaitable[Response]:
        request = self._client.build_request(method, path, json=body, headers={"Accept-Encoding": "identity"})
        answer: Awaitable[Response] = self._client.send(request, stream=True)
        return answer


def connection(base_url: str | None, key: str | None) -> OllamaConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    return OllamaConnection(
        base_url,
        headers={"Authorization": f"Bearer {key}"} if key else None,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
        limits=httpx.Limits(max_connections=None),
    )
