"""Anthropic -> SDK -> socket: the one file that imports Anthropic's SDK and its HTTP stack (seconds of imports)."""

import anthropic
import httpx2

from tg_base.wires.claude_connection import ClaudeConnection, Sdk
from tg_base.wires.sdk_response import CONNECT_TIMEOUT, Failures

_SDK = Sdk(
    refused=anthropic.APIStatusError,
    response=httpx2.Response,
    stream=anthropic.AsyncStream[object],
    failures=Failures(
        slow=(anthropic.APITimeoutError,), unreachable=(anthropic.APIConnectionError,), broken=(httpx2.HTTPError,)
    ),
)


def connection(base_url: str, key: str | None) -> ClaudeConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request."""
    client = anthropic.AsyncAnthropic(
        base_url=base_url,
        api_key=key or "none",
        max_retries=0,
        http_client=httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT), limits=httpx2.Limits(max_connections=None)
        ),
    )
    keyless = {"Authorization": anthropic.Omit(), "X-Api-Key": anthropic.Omit()}
    return ClaudeConnection(client, _SDK, None if key else keyless)
