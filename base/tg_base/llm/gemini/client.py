"""Gemini -> Google's SDK -> socket: how the SDK's client is called. Packages that host Gemini create it.

The SDK prepares requests (URL, credentials, headers), our connections send them. The SDK's own reader fails on
keep-alives, reports a stream without its terminal marker as complete, and sleeps for seconds after a failure.
"""

import asyncio
from ssl import SSLContext
from typing import Any

import msgspec

from tg_base.llm import NO_FAILURES, Failures, HttpAnswer, Method, PreparedConnection, SdkRequest, open_pool


class CountedPrompt(msgspec.Struct, frozen=True):
    """The body of a `countTokens`, where a body alone is one of an answer."""

    body: bytes


class GeminiConnection:
    """The connection for answers, and the one for counts of tokens.

    Args:
        answers: for answers and the list of models.
        counts: the same with another URL; it has the same pool.
    """

    def __init__(self, answers: PreparedConnection, counts: PreparedConnection) -> None:
        self._answers = answers
        self._counts = counts

    async def post(self, call: bytes | CountedPrompt) -> HttpAnswer:
        """See `SdkConnection`."""
        return await (self._counts.post(call.body) if isinstance(call, CountedPrompt) else self._answers.post(call))

    async def models(self) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._answers.models()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._answers.aclose()


def connect_client(
    client: Any, recorded: list[SdkRequest], tls: SSLContext, model: str, failures: Failures = NO_FAILURES
) -> GeminiConnection:
    """A connection by a client of the SDK that only records its requests, and a pool that sends them.

    Args:
        client: the SDK's client.
        recorded: the list to which its transport appends each request.
        tls: the trusted certificates.
        model: its name at the provider.
        failures: the SDK's exceptions for missing credentials.
    """
    models = client.aio.models
    # Both connections let the SDK prepare, and it has one list for what it prepared.
    preparing = asyncio.Lock()

    async def prepare(method: Method) -> SdkRequest:
        async with preparing:
            recorded.clear()
            # The contents are a placeholder: only URL and headers are used; the recorder answers with an empty body.
            if method == "POST":
                async for _ in await models.generate_content_stream(model=model, contents="-"):
                    pass
            else:
                await models.list(config={"page_size": 1000})
            return recorded.pop()

    async def prepare_count(_: Method) -> SdkRequest:
        async with preparing:
            recorded.clear()
            await models.count_tokens(model=model, contents="-")
            return recorded.pop()

    pool = open_pool(tls)
    return GeminiConnection(
        PreparedConnection(prepare, pool, failures), PreparedConnection(prepare_count, pool, failures)
    )
