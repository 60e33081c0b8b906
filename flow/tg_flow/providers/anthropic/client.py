"""Anthropic -> SDK -> socket: only this file imports Anthropic's SDK and its HTTP stack, which takes seconds."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm import CapturedConnection, CapturingTransport, Endpoint, share_tls
from tg_base.llm.anthropic import connect_client


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(share_tls(httpx2.create_ssl_context)))
    client = anthropic.AsyncAnthropic(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",
        # `LlmService` asks again, and the guard has the clocks.
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, timeout=None),
    )
    # Without a key, the SDK insists on one, and would also take another from the environment.
    keyless = {"Authorization": anthropic.Omit(), "X-Api-Key": anthropic.Omit()}
    return connect_client(client, httpx2.Response, anthropic.AsyncStream[object], {} if endpoint.key else keyless)
