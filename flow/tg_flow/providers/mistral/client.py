"""Mistral -> SDK -> socket: the one file that imports Mistral's SDK and its HTTP stack."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

import httpx2
from mistralai.client import Mistral

from tg_base.llm.http import Failures, HttpAnswer
from tg_base.llm.http.pool import HttpPool
from tg_base.llm.http.sdk_capture import CapturingTransport, capture


class MistralConnection:
    """The SDK's client, asked for bytes: its own reading hides what an error in a stream says."""

    failures = Failures()

    def __init__(self, http: httpx2.AsyncClient, base_url: str | None, key: str | None) -> None:
        self._http = http
        self._sdk = Mistral(api_key=key or "none", server_url=base_url, async_client=http)

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """Ask for an answer as a stream; any status is an answer."""
        return capture(partial(self._sdk.chat.stream_async, **body))

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer."""
        return capture(self._sdk.models.list_async)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def connection(base_url: str | None, key: str | None) -> MistralConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    pool = HttpPool(httpx2.create_ssl_context())
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(pool, keyless=key is None))
    return MistralConnection(httpx2.AsyncClient(transport=transport), base_url, key)
