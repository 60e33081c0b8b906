"""How the tests of the openai provider ask it."""

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from tests.fakes.openai_server import OpenAiServer
from tg_base.llm import LlmChunk
from tg_flow.providers.openai import OpenAiCompatible
from tg_schema import TextCompletionRequest, TextCompletionResponse

MODEL = OpenAiServer.model
DATED = f"{MODEL}-2026-01-01"
REQUEST = TextCompletionRequest(system="be brief", prompt="say hello", streaming=True, model="ours")

Open = Callable[..., Coroutine[Any, Any, OpenAiCompatible]]


async def chunks(provider: OpenAiCompatible, request: TextCompletionRequest = REQUEST) -> list[LlmChunk]:
    async with aclosing(provider.generate_content_stream(request)) as stream:
        return [chunk async for chunk in stream]


async def responses(
    provider: OpenAiCompatible,
    request: TextCompletionRequest = REQUEST,
    into: list[TextCompletionResponse] | None = None,
) -> list[TextCompletionResponse]:
    received = [] if into is None else into
    async with aclosing(provider.on_request(request)) as stream:
        async for response in stream:
            received.append(response)
    return received
