"""VertexClaude -> SDK -> socket: the one file that imports Anthropic's SDK (seconds of imports)."""

import anthropic
import httpx2

from tg_base.wires.claude_connection import ClaudeConnection, Sdk
from tg_base.wires.sdk_response import CONNECT_TIMEOUT, Failures
from tg_vertexai.account import REFUSED, UNREACHABLE, account

_SDK = Sdk(
    refused=anthropic.APIStatusError,
    response=httpx2.Response,
    stream=anthropic.AsyncStream[object],
    failures=Failures(
        slow=(anthropic.APITimeoutError,),
        unreachable=(anthropic.APIConnectionError, *UNREACHABLE),
        broken=(httpx2.HTTPError,),
        credentials=REFUSED,
    ),
)


def connection(
    base_url: str | None, project: str | None, location: str | None, credentials_file: str | None
) -> ClaudeConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    owner = account(project, location, credentials_file)
    client = anthropic.AsyncAnthropicVertex(
        region=owner.location,
        project_id=owner.project,
        credentials=owner.credentials,
        base_url=f"{base_url.rstrip('/')}/v1" if base_url else None,
        max_retries=0,
        http_client=httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT), limits=httpx2.Limits(max_connections=None)
        ),
    )
    return ClaudeConnection(client, _SDK)
