"""Mistral -> SDK -> socket: the one file that imports Mistral's SDK and its HTTP stack."""

from typing import cast

import httpx2
from mistralai.client import Mistral

from tg_base.llm import CapturedConnection, CapturingTransport, Endpoint


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request.

    Its own reading hides what an error in a stream says.
    """
    transport = CapturingTransport(httpx2.create_ssl_context(), keyless=endpoint.key is None)
    http = httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, transport))
    sdk = Mistral(api_key=endpoint.key or "none", server_url=endpoint.base_url, async_client=http)
    return CapturedConnection(lambda body: sdk.chat.stream_async(**body), sdk.models.list_async, http.aclose)
