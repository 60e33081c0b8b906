"""Anthropic -> SDK -> socket: the one file that imports Anthropic's SDK and its HTTP stack (seconds of imports)."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm.anthropic import ClaudeConnection, Sdk
from tg_base.llm.http.pool import HttpPool
from tg_base.llm.http.sdk_capture import CapturingTransport

_SDK = Sdk(response=httpx2.Response, stream=anthropic.AsyncStream[object])


def connection(base_url: str, key: str | None) -> ClaudeConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(HttpPool(httpx2.create_ssl_context())))
    client = anthropic.AsyncAnthropic(
        base_url=base_url,
        api_key=key or "none",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, timeout=None),
    )
    keyless = {"Authorization": anthropic.Omit(), "X-Api-Key": anthropic.Omit()}
    return ClaudeConnection(client, _SDK, None if key else keyless)
