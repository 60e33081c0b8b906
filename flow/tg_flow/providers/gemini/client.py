"""GoogleAiStudio -> SDK -> socket: only this file imports Google's SDK and its HTTP stack, which takes seconds."""

from typing import cast

import httpx
from google import genai
from google.genai.types import HttpOptions

from tg_base.llm import Endpoint, PreparedConnection, SdkRecorder, open_pool, share_tls
from tg_base.llm.gemini import find_calls


def connect(endpoint: Endpoint) -> PreparedConnection:
    """Create the SDK's client; slow, so call it in a thread. It connects at the first request."""
    recorder = SdkRecorder(keyless=endpoint.key is None)
    # Without this, the SDK creates two TLS contexts for each key, and uses neither.
    tls = share_tls(httpx.create_ssl_context)
    client = genai.Client(
        vertexai=False,
        # The SDK requires a key, so give it a placeholder, which the recorder leaves out.
        api_key=endpoint.key or "none",
        http_options=HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, recorder)),
            client_args={"verify": tls},
            async_client_args={"ssl": tls},
        ),
    )
    return PreparedConnection(recorder, find_calls(client, endpoint.model), open_pool(tls))
