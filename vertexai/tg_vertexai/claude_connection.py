"""VertexClaude -> SDK -> socket: the one file that imports Anthropic's SDK (seconds of imports)."""

from typing import cast

import anthropic
import httpx2

from tg_base.llm.anthropic import ClaudeConnection, Sdk
from tg_base.llm.http import Failures
from tg_base.llm.http.pool import HttpPool
from tg_base.llm.http.sdk_capture import CapturingTransport
from tg_vertexai.account import AUTH_ERRORS, TRANSPORT_ERRORS, account

_SDK = Sdk(
    response=httpx2.Response,
    stream=anthropic.AsyncStream[object],
    failures=Failures(unreachable=TRANSPORT_ERRORS, credentials=AUTH_ERRORS),
)


def connection(
    base_url: str | None, project: str | None, location: str | None, credentials_file: str | None
) -> ClaudeConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    owner = account(project, location, credentials_file)
    transport = cast(httpx2.AsyncBaseTransport, CapturingTransport(HttpPool(httpx2.create_ssl_context())))
    client = anthropic.AsyncAnthropicVertex(
        region=owner.location,
        project_id=owner.project,
        credentials=owner.credentials,
        base_url=f"{base_url.rstrip('/').removesuffix('/v1')}/v1" if base_url else None,
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, timeout=None),
    )
    return ClaudeConnection(client, _SDK)
