"""VertexClaude -> SDK -> socket: only this file imports Anthropic's SDK, which takes seconds."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm import PreparedConnection, SdkRecorder, open_pool, share_tls
from tg_base.llm.anthropic import find_calls
from tg_vertexai.account import FAILURES, find_account
from tg_vertexai.endpoint import VertexEndpoint


def connect(endpoint: VertexEndpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    owner, base_url = find_account(endpoint), endpoint.base_url
    recorder = SdkRecorder()
    client = anthropic.AsyncAnthropicVertex(
        region=owner.location,
        project_id=owner.project,
        credentials=owner.credentials,
        base_url=f"{base_url.rstrip('/').removesuffix('/v1')}/v1" if base_url else None,
        # `LlmService` retries, and the guard enforces the timeouts.
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, recorder), timeout=None),
    )
    calls = find_calls(client, endpoint.model)
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx2.create_ssl_context)), FAILURES)
