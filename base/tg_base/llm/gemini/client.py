"""Gemini -> Google's SDK -> socket: how the SDK's client is called. Packages that host Gemini create it.

The SDK prepares requests (URL, credentials, headers), our connections send them. The SDK's own reader fails on
keep-alives, reports a stream without its terminal marker as complete, and sleeps for seconds after a failure.
"""

from ssl import SSLContext
from typing import Any

from tg_base.llm import NO_FAILURES, Failures, Method, PreparedConnection, SdkRequest, open_pool


def connect_client(
    client: Any, recorded: list[SdkRequest], tls: SSLContext, model: str, failures: Failures = NO_FAILURES
) -> PreparedConnection:
    """A connection by a client of the SDK that only records its requests, and a pool that sends them.

    Args:
        client: the SDK's client.
        recorded: the list to which its transport appends each request.
        tls: the trusted certificates.
        model: its name at the provider.
        failures: the SDK's exceptions for missing credentials.
    """
    models = client.aio.models

    async def prepare(method: Method) -> SdkRequest:
        recorded.clear()
        # The contents are a placeholder: only URL and headers are used, and the recorder answers with an empty body.
        if method == "POST":
            async for _ in await models.generate_content_stream(model=model, contents="-"):
                pass
        else:
            await models.list(config={"page_size": 1000})
        return recorded.pop()

    return PreparedConnection(prepare, open_pool(tls), failures)
