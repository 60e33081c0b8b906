"""Anthropic -> SDK -> socket: only this file imports Anthropic's SDK and its HTTP stack, which takes seconds."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm import Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls
from tg_base.llm.anthropic import find_calls


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    # The SDK requires a key, and would otherwise take one from the environment.
    recorder = SdkRecorder(keyless=endpoint.key is None)
    client = anthropic.AsyncAnthropic(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",
        # `LlmService` retries, and the guard enforces the timeouts.
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, recorder), timeout=None),
    )
    calls = find_calls(client, endpoint.model)
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx2.create_ssl_context)))
