"""OpenAI's own SDK before the real engine: stop strings, log-probabilities, schemas, seeds and several choices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.fakes.counting_llm import CountingLlm
from tests.flow.openai_sdk import ask, open_sdk
from tests.llama.demo_llm import STORY, opened

pytestmark = pytest.mark.model

DEMO = "tinydemo"


class Person(BaseModel):
    name: str
    age: int


def story(**fields: Any) -> dict[str, Any]:
    return ask(STORY, model=DEMO, temperature=0, max_tokens=24, **fields)


@asynccontextmanager
async def demo() -> AsyncIterator[AsyncOpenAI]:
    async with opened() as service, open_sdk(llm=CountingLlm(DEMO), instead=service) as (_, client):
        yield client


async def test_a_stop_string_ends_the_answer_wherever_its_pieces_are() -> None:
    async with demo() as client:
        text = (await client.chat.completions.create(**story())).choices[0].message.content or ""
        stop = text[10:16]
        assert stop
        for fields in ({"stop": stop}, {"stop": ["never to come", stop]}):
            (choice,) = (await client.chat.completions.create(**story(**fields))).choices
            assert (choice.message.content, choice.finish_reason) == (text.partition(stop)[0], "stop")
            async with client.chat.completions.stream(**story(**fields)) as stream:
                assert (await stream.get_final_completion()).choices[0].message.content == text.partition(stop)[0]


async def test_tokens_are_the_text_and_their_alternatives_are_ordered() -> None:
    async with demo() as client:
        (choice,) = (await client.chat.completions.create(**story(logprobs=True, top_logprobs=3))).choices
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        assert b"".join(bytes(token.bytes or ()) for token in tokens) == (choice.message.content or "").encode()
        for token in tokens:
            tops = [top.logprob for top in token.top_logprobs]
            assert (len(tops), tops) == (3, sorted(tops, reverse=True))
            assert token.logprob == tops[0]


async def test_a_schema_is_satisfied() -> None:
    async with demo() as client:
        asked = ask("Anna is 30 years old.", model=DEMO, temperature=0, response_format=Person)
        completion = await client.chat.completions.parse(**asked)
        assert isinstance(completion.choices[0].message.parsed, Person)


async def test_several_choices_of_one_seed() -> None:
    fields = {**story(n=3, seed=7), "temperature": 1}
    async with demo() as client:
        first, second = [await client.chat.completions.create(**fields) for _ in range(2)]
        assert [choice.index for choice in first.choices] == [0, 1, 2]
        texts = [choice.message.content for choice in first.choices]
        assert len(set(texts)) > 1
        assert texts == [choice.message.content for choice in second.choices]
        assert first.usage is not None
        assert first.usage.completion_tokens <= 3 * 24


async def test_tools_are_called_streamed_and_answered() -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": city}}]
    fields = ask("What is the weather in Oslo?", model=DEMO, temperature=0, max_tokens=60, tools=tools)
    async with demo() as client:
        choices: list[Any] = ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}]
        for choice in choices:
            async with client.chat.completions.stream(**fields, tool_choice=choice) as stream:
                answer = (await stream.get_final_completion()).choices[0]
            assert answer.finish_reason == "tool_calls"
            call = (answer.message.tool_calls or [])[0]
            assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Oslo"}')
        told = {"role": "tool", "tool_call_id": call.id, "content": "It rains."}
        messages = [*fields["messages"], answer.message.model_dump(exclude_none=True), told]
        (last,) = (await client.chat.completions.create(**{**fields, "messages": messages})).choices
        assert last.finish_reason in {"stop", "tool_calls"}
