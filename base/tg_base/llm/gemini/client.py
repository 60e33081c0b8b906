"""Gemini -> Google's SDK -> socket: how its client is called. Packages that host Gemini make it, and import the SDK.

The SDK prepares requests (URL, credentials, headers); our connections send them. Its own reading fails on keep-alives,
takes an end without terminal marker for a success, and waits seconds after a failure.
"""

from ssl import SSLContext
from typing import Any

from tg_base.llm import NO_FAILURES, Failures, Method, PreparedConnection, SdkRequest, open_pool


def connect_client(
    client: Any, recorded: list[SdkRequest], tls: SSLContext, model: str, failures: Failures = NO_FAILURES
) -> PreparedConnection:
    """A client of the SDK whose requests go nowhere but into `recorded`, and a pool of connections that sends them.

    Args:
        client: of the SDK.
        recorded: what it has sent.
        tls: which certificates are trusted.
        model: its name at the provider.
        failures: the SDK's exceptions where it has no credentials.
    """
    models = client.aio.models

    async def prepare(method: Method) -> SdkRequest:
        recorded.clear()
        if method == "POST":
            async for _ in await models.generate_content_stream(model=model, contents="-"):
                pass
        else:
            await models.list(config={"page_size": 1000})
        return recorded.pop()

    return PreparedConnection(prepare, open_pool(tls), failures)
