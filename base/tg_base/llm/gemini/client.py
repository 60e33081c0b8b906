"""Gemini -> Google's SDK -> socket: how the SDK's client is called. Packages that host Gemini create it.

The SDK prepares requests (URL, credentials, headers), our connections send them. The SDK's own reader fails on
keep-alives, reports a stream without its terminal marker as complete, and sleeps for seconds after a failure.
"""

import asyncio
from ssl import SSLContext
from typing import Any, Final

from tg_base.llm import (
    NO_FAILURES,
    Failures,
    Method,
    PreparedConnection,
    RoutedConnection,
    SdkRequest,
    open_pool,
)

COUNT_ROUTE: Final = "countTokens"


def connect_client(
    client: Any, recorded: list[SdkRequest], tls: SSLContext, model: str, failures: Failures = NO_FAILURES
) -> RoutedConnection:
    """A connection by a client of the SDK that only records its requests, and a pool that sends them.

    Args:
        client: the SDK's client.
        recorded: the list to which its transport appends each request.
        tls: the trusted certificates.
        model: its name at the provider.
        failures: the SDK's exceptions for missing credentials.
    """
    models = client.aio.models
    # All connections share the SDK's one list of prepared requests, so prepare one at a time.
    preparing = asyncio.Lock()

    async def prepare(method: Method) -> SdkRequest:
        async with preparing:
            recorded.clear()
            # The contents are a placeholder: only URL and headers are used; the recorder answers with an empty body.
            if method == "POST":
                async for _ in await models.generate_content_stream(model=model, contents="-"):
                    pass
            else:
                # The API's largest page, so that one request lists all models.
                await models.list(config={"page_size": 1000})
            return recorded.pop()

    async def prepare_count(_: Method) -> SdkRequest:
        async with preparing:
            recorded.clear()
            await models.count_tokens(model=model, contents="-")
            return recorded.pop()

    async def prepare_vectors(_: Method) -> SdkRequest:
        async with preparing:
            recorded.clear()
            await models.embed_content(model=model, contents="-")
            return recorded.pop()

    pool = open_pool(tls)
    counts = PreparedConnection(prepare_count, pool, failures)
    vectors = PreparedConnection(prepare_vectors, pool, failures)
    answers = PreparedConnection(prepare, pool, failures)
    return RoutedConnection(answers, {COUNT_ROUTE: counts, "embeddings": vectors})
