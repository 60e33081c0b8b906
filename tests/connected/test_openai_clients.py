"""OpenAI's own SDK before processes over a real broker: it answers, is left, and loses a processor and its gateway."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import MODEL, LiveOpenAi, told
from tests.until import AT_ONCE_SECONDS

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

DEATH_SECONDS = 5.0
"""From a death to the error that tells it."""


async def begin(client: AsyncOpenAI) -> tuple[AsyncStream[ChatCompletionChunk], str]:
    """A stream, and the text of its first chunk."""
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "go on"}]
    stream = await client.chat.completions.create(model=MODEL, messages=asked, stream=True)
    first = await anext(aiter(stream))
    return stream, first.choices[0].delta.content or ""


async def rest(stream: AsyncStream[ChatCompletionChunk]) -> str:
    return "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])


async def test_the_sdk_over_a_broker(live_model: LiveOpenAi, line: Pipeline) -> None:
    gateway, processor = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    async with AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="any", max_retries=0, timeout=60) as client:
        left, _ = await begin(client)
        (generation,) = live_model.generations
        await left.close()
        async with asyncio.timeout(AT_ONCE_SECONDS):
            await generation.left.wait()

        whole, text = await begin(client)
        live_model.finish.set()
        told(text + await rest(whole), whole=True)
        assert [model.id async for model in client.models.list()] == [MODEL]

        live_model.finish.clear()
        orphan, _ = await begin(client)
        processor.process.kill()
        with pytest.raises(openai.APIError, match="processor died") as raised:
            async with asyncio.timeout(DEATH_SECONDS):
                await rest(orphan)
        assert raised.value.code == "unavailable"

        await line.start("text-completion")
        # It serves, and its first announcement may be on its way to the gateway: the SDK asks again, as it is told.
        cut, _ = await begin(client.with_options(max_retries=3))
        gateway.process.kill()
        with pytest.raises(openai.APIConnectionError):
            await rest(cut)
