"""OpenAiCompatible -> SDK -> socket: only this file imports OpenAI's SDK and its HTTP stack, which takes seconds."""

from collections.abc import Callable
from functools import partial
from typing import Final, cast

import httpx2
import openai

from tg_base.llm import ANSWERS, EMBEDDINGS, MODELS, Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls
from tg_flow.providers.openai.endpoint import AzureEndpoint

ROOT_ROUTES: Final = ("tokenize", "detokenize", "chat_tokenize", "generate", "generate_stream")
"""Routes of vLLM's and TGI's servers in addition to OpenAI's; all of them take a POST."""


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorder = SdkRecorder(keyless=endpoint.key is None)
    client = _client(endpoint, recorder)
    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    urls = {ANSWERS: "/chat/completions", EMBEDDINGS: "/embeddings", "completions": "/completions"}
    urls |= {route: f"{root}/{route}" for route in ROOT_ROUTES}
    # Use only addresses and headers of the SDK: its typed methods would import all of its resources.
    calls = {route: partial(client.post, url, content=b"{}", cast_to=object) for route, url in urls.items()}
    calls[MODELS] = partial(client.get, "/models", cast_to=object)
    return PreparedConnection(recorder, calls, open_pool(share_tls(httpx2.create_ssl_context)))


def _client(endpoint: Endpoint, recorder: SdkRecorder) -> openai.AsyncOpenAI:
    """Create the client, and make it load its lazy parts here in the thread, not later on the event loop."""
    make: Callable[..., openai.AsyncOpenAI] = partial(openai.AsyncOpenAI, base_url=endpoint.base_url)
    if isinstance(endpoint, AzureEndpoint):
        make = partial(
            openai.AsyncAzureOpenAI,
            azure_endpoint=endpoint.base_url or "",
            azure_deployment=endpoint.model,
            api_version=endpoint.api_version,
        )
    client = make(
        # The SDK requires a key. If there is none, the recorder leaves out the placeholder's header.
        api_key=endpoint.key or "none",
        # `LlmService` retries: only it knows whether any output was sent already.
        max_retries=0,
        # The guard enforces the timeouts.
        timeout=None,
        http_client=httpx2.AsyncClient(transport=cast(httpx2.AsyncBaseTransport, recorder), trust_env=False),
        default_headers={"Accept": "text/event-stream"},
    )
    _ = client.auth_headers, client.platform_headers()
    return client
