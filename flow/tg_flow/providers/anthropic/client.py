"""Anthropic -> SDK -> socket: the one file that imports Anthropic's SDK and its HTTP stack (seconds of imports)."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm import CapturedConnection, CapturingTransport, Endpoint
from tg_base.llm.anthropic import connect_client


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(httpx2.create_ssl_context()))
    client = anthropic.AsyncAnthropic(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, timeout=None),
    )
    keyless = {"Authorization": anthropic.Omit(), "X-Api-Key": anthropic.Omit()}
    return connect_client(client, httpx2.Response, anthropic.AsyncStream[object], {} if endpoint.key else keyless)
