"""Cohere -> SDK -> socket: the one file that imports Cohere's SDK and its HTTP stack."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

import cohere
import httpx

from tg_base.llm.http import Failures, HttpAnswer
from tg_base.llm.http.pool import HttpPool
from tg_base.llm.http.sdk_capture import CapturingTransport, capture


class CohereConnection:
    """The SDK's client, asked for bytes: its own reading leaves out events that it cannot read, and errors."""

    failures = Failures()

    def __init__(self, http: httpx.AsyncClient, base_url: str | None, key: str | None) -> None:
        self._http = http
        self._sdk = cohere.AsyncClientV2(key or "none", base_url=base_url, httpx_client=http, max_retries=0)

    def post(self, body: dict[str, Any]) -> Awaitable[HttpAnswer]:
        """Ask for an answer as a stream; any status is an answer."""
        return capture(partial(anext, self._sdk.chat_stream(**body)))

    def models(self) -> Awaitable[HttpAnswer]:
        """Ask for the list of models; any status is an answer."""
        return capture(partial(self._sdk.models.list, endpoint="chat", page_size=1000))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def connection(base_url: str | None, key: str | None) -> CohereConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    pool = HttpPool(httpx.create_ssl_context())
    transport = cast(httpx.AsyncBaseTransport, CapturingTransport(pool, keyless=key is None))
    return CohereConnection(httpx.AsyncClient(transport=transport), base_url, key)
