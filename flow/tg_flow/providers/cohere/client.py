"""Cohere -> SDK -> socket: only this file imports Cohere's SDK and its HTTP stack."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

import cohere
import httpx

from tg_base.llm import CapturedConnection, CapturingTransport, EmbeddingCall, Endpoint, share_tls


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request.

    Answers are captured because the SDK's own reader skips errors and all events that it cannot parse.
    """
    transport = CapturingTransport(share_tls(httpx.create_ssl_context), keyless=endpoint.key is None)
    http = httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, transport))
    sdk = cohere.AsyncClientV2(endpoint.key or "none", base_url=endpoint.base_url, httpx_client=http, max_retries=0)
    # 1000 is Cohere's largest page, so that one request lists all.
    models = partial(sdk.models.list, endpoint="chat", page_size=1000)

    def post(call: dict[str, Any] | EmbeddingCall) -> Awaitable[object]:
        if isinstance(call, EmbeddingCall):
            return sdk.embed(**call.body)
        # `chat_stream` is a generator function: its request is sent by the first `anext`.
        return anext(sdk.chat_stream(**call))

    return CapturedConnection(post, models, http.aclose)
