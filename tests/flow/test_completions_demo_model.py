"""OpenAI's own SDK before the real engine: completions, several at once, their tokens, and vectors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types import Completion

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened
from tests.flow.openai_sdk import open_sdk
from tests.llama.demo_llm import opened

pytestmark = pytest.mark.model

DEMO = "tinydemo"
PROMPTS = ["A topic is", "2 + 3 =", "Paris is"]


@asynccontextmanager
async def demo() -> AsyncIterator[tuple[Opened, AsyncOpenAI]]:
    async with opened() as service, open_sdk(llm=CountingLlm(DEMO), instead=service) as (it, client):
        yield it, client


async def post(it: Opened, path: str, **body: Any) -> dict[str, Any]:
    async with it.http.post(path, json=body) as response:
        told: dict[str, Any] = await response.json()
        assert response.status == 200, told
        return told


async def complete(client: AsyncOpenAI, prompt: Any, **fields: Any) -> Completion:
    asked = {"temperature": 0, "max_tokens": 8, **fields}
    completion: Completion = await client.completions.create(model=DEMO, prompt=prompt, **asked)
    return completion


async def test_prompts_together_are_answered_as_alone_and_streamed_as_whole() -> None:
    async with demo() as (_, client):
        alone = [(await complete(client, prompt)).choices[0].text for prompt in PROMPTS]
        together = await complete(client, PROMPTS, n=2)
        assert [choice.text for choice in together.choices] == [text for text in alone for _ in range(2)]
        texts = [""] * 6
        async for chunk in await client.completions.create(
            model=DEMO, prompt=PROMPTS, n=2, temperature=0, max_tokens=8, stream=True
        ):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in together.choices]


async def test_tokens_stand_at_their_places_and_ids_mean_their_text() -> None:
    async with demo() as (it, client):
        (choice,) = (await complete(client, PROMPTS[0], logprobs=3, echo=False)).choices
        logprobs = choice.logprobs
        assert logprobs is not None
        assert "".join(logprobs.tokens or ()) == choice.text
        for token, offset, tops in zip(
            logprobs.tokens or (), logprobs.text_offset or (), logprobs.top_logprobs or (), strict=True
        ):
            assert choice.text[offset:].startswith(token)
            assert max(tops, key=lambda top: tops[top]) == token
        told = await post(it, "tokenize", model=DEMO, prompt=PROMPTS[0])
        assert told["count"] == len(told["tokens"])
        by_ids = await complete(client, told["tokens"])
        assert by_ids.choices[0].text == choice.text
        assert (await complete(client, PROMPTS[0], echo=True)).choices[0].text == PROMPTS[0] + choice.text


async def test_each_of_several_choices_has_the_tokens_of_the_prompt_at_their_places() -> None:
    async with demo() as (_, client):
        asked: dict[str, Any] = {"n": 2, "echo": True, "logprobs": 1, "max_tokens": 3}
        whole = (await complete(client, PROMPTS[0], **asked)).choices
        for choice in whole:
            assert choice.logprobs is not None
            assert "".join(choice.logprobs.tokens or ()) == choice.text
            for token, offset in zip(choice.logprobs.tokens or (), choice.logprobs.text_offset or (), strict=True):
                assert choice.text[offset:].startswith(token)
        pieces: dict[int, list[int]] = {0: [], 1: []}
        stream = await client.completions.create(model=DEMO, prompt=PROMPTS[0], temperature=0, stream=True, **asked)
        async for chunk in stream:
            for streamed in chunk.choices:
                pieces[streamed.index] += (streamed.logprobs and streamed.logprobs.text_offset) or ()
        assert [pieces[choice.index] for choice in whole] == [
            choice.logprobs and choice.logprobs.text_offset for choice in whole
        ]


async def test_vectors_of_like_texts_are_alike() -> None:
    async with demo() as (it, client):
        like, unlike = "A topic is a stream of messages.", "Paris is in France."
        made = await client.embeddings.create(model=DEMO, input=[like, unlike, like])
        first, second, third = (each.embedding for each in made.data)
        assert first == pytest.approx(third, abs=1e-5)
        assert first != pytest.approx(second, abs=1e-2)
        told = await post(it, "rerank", model=DEMO, query=like, documents=[unlike, like])
        best, other = told["results"]
        assert (best["index"], best["document"]["text"]) == (1, like)
        assert best["relevance_score"] == pytest.approx(1, abs=1e-4)
        assert other["relevance_score"] < best["relevance_score"]
