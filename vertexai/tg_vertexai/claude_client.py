"""VertexClaude -> SDK -> socket: the one file that imports Anthropic's SDK (seconds of imports)."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm import CapturedConnection, CapturingTransport
from tg_base.llm.anthropic import connect_client
from tg_vertexai.account import FAILURES, find_account
from tg_vertexai.endpoint import VertexEndpoint


def connect(endpoint: VertexEndpoint) -> CapturedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    owner, base_url = find_account(endpoint), endpoint.base_url
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(httpx2.create_ssl_context()))
    client = anthropic.AsyncAnthropicVertex(
        region=owner.location,
        project_id=owner.project,
        credentials=owner.credentials,
        base_url=f"{base_url.rstrip('/').removesuffix('/v1')}/v1" if base_url else None,
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, timeout=None),
    )
    return connect_client(client, httpx2.Response, anthropic.AsyncStream[object], {}, FAILURES)
