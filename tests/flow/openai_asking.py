"""How the tests of the openai provider ask it."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
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

    def put(response: TextCompletionResponse) -> bool:
        received.append(response)
        return True

    stream: AsyncGenerator[TextCompletionResponse, Any] = provider.on_request(request)
    async with aclosing(stream):
        with suppress(StopAsyncIteration):
            received.append(await anext(stream))
            while True:
                # As a processor asks: what comes before the next one need not wake it.
                received.append(await stream.asend(put))
    return received
