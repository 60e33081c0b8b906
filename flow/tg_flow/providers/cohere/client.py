"""Cohere -> SDK -> socket: the one file that imports Cohere's SDK and its HTTP stack."""

from functools import partial
from typing import cast

import cohere
import httpx

from tg_base.llm import CapturedConnection, CapturingTransport, Endpoint


def connect(endpoint: Endpoint) -> CapturedConnection:
    """Make the SDK's client ready, in a thread: that takes a while. No connection is made before the first request.

    Its own reading leaves out events that it cannot read, and errors.
    """
    transport = CapturingTransport(httpx.create_ssl_context(), keyless=endpoint.key is None)
    http = httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, transport))
    sdk = cohere.AsyncClientV2(endpoint.key or "none", base_url=endpoint.base_url, httpx_client=http, max_retries=0)
    models = partial(sdk.models.list, endpoint="chat", page_size=1000)
    return CapturedConnection(lambda body: anext(sdk.chat_stream(**body)), models, http.aclose)
