"""Gemini -> Google's SDK -> socket: how the SDK's client is called. Packages that host Gemini create it.

The SDK's own reader fails on keep-alives, reports a stream without its terminal marker as complete, and sleeps for
seconds after a failure.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tg_base.llm import ANSWERS, COUNT, EMBEDDINGS, MODELS


def find_calls(client: Any, model: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """What a `PreparedConnection` calls of a client of the SDK; the contents are placeholders."""
    models = client.aio.models

    async def answer() -> object:
        return await anext(await models.generate_content_stream(model=model, contents="-"))

    return {
        ANSWERS: answer,
        COUNT: lambda: models.count_tokens(model=model, contents="-"),
        EMBEDDINGS: lambda: models.embed_content(model=model, contents="-"),
        # The API's largest page, so that one request lists all models.
        MODELS: lambda: models.list(config={"page_size": 1000}),
    }
