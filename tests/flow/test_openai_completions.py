"""Completions through OpenAI's own SDK, over a gateway that listens, the bus and a processor."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from msgspec import structs
from openai import AsyncOpenAI
from openai.types import Completion

from tests.fakes.byte_llm import ByteLlm
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, until_listed
from tests.flow.openai_sdk import MODEL, blocking_sdk, open_sdk, sdk
from tests.until import until
from tg_base.config import ApiKey, GatewayConfig

KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), streams=2)
KEYED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


@asynccontextmanager
async def bytes_model(*, capacity: int = 256, **options: Any) -> AsyncIterator[tuple[Opened, ByteLlm, AsyncOpenAI]]:
    llm = ByteLlm()
    llm.capacity = capacity
    async with open_sdk(llm=llm, **options) as (it, client):
        yield it, llm, client


async def complete(client: AsyncOpenAI, prompt: Any, **fields: Any) -> Completion:
    completion: Completion = await client.completions.create(model=MODEL, prompt=prompt, **fields)
    return completion


async def stream(client: AsyncOpenAI, prompt: Any, **fields: Any) -> list[Completion]:
    chunks = await client.completions.create(model=MODEL, prompt=prompt, stream=True, **fields)
    return [chunk async for chunk in chunks]


def texts_of(chunks: list[Completion]) -> dict[int, str]:
    texts: dict[int, str] = defaultdict(str)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    return texts


async def test_a_whole_answer() -> None:
    async with bytes_model() as (_, llm, client):
        completion = await complete(client, "ab", extra_body={"unheard_of": 1})
        assert (completion.object, completion.model) == ("text_completion", MODEL)
        (choice,) = completion.choices
        assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, "AB" * 8, "length", None)
        assert completion.usage is not None
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (2, 16)
        raw = await client.completions.with_raw_response.create(
            model=MODEL, prompt="ab", extra_body={"unheard_of": 1}, extra_headers={"X-Request-Id": "r-1"}
        )
        assert (raw.headers["x-request-id"], raw.headers["x-tokengrid-ignored"]) == ("r-1", "unheard_of")
        asked = llm.requests[0]
        assert (asked.raw, asked.prompt, asked.streaming) == (True, "ab", False)


async def test_the_blocking_client() -> None:
    async with bytes_model() as (it, _, _):

        def ask() -> tuple[str, list[str]]:
            with blocking_sdk(it.gateway) as client:
                whole = client.completions.create(model=MODEL, prompt=[97, 98], max_tokens=3)
                chunks = client.completions.create(model=MODEL, prompt=[97, 98], max_tokens=3, stream=True)
                return whole.choices[0].text, [chunk.choices[0].text for chunk in chunks]

        whole, pieces = await asyncio.to_thread(ask)
        assert (whole, "".join(pieces), pieces[-1]) == ("ABA", "ABA", "")


@pytest.mark.parametrize("prompts", [["ab", "c", "é"], [[97, 98], [99], [195, 169]]])
async def test_several_prompts_have_their_choices_in_order(prompts: list[Any]) -> None:
    async with bytes_model() as (_, llm, client):
        fields: dict[str, Any] = {"n": 2, "max_tokens": 2, "echo": True}
        whole = await complete(client, prompts, **fields)
        assert [choice.index for choice in whole.choices] == [0, 1, 2, 3, 4, 5]
        texts = [choice.text for choice in whole.choices]
        assert texts[:4] == ["abAB", "abAB", "cCC", "cCC"]
        chunks = await stream(client, prompts, **fields, stream_options={"include_usage": True})
        assert [text for _, text in sorted(texts_of(chunks).items())] == texts
        ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        assert sorted(ends) == [0, 1, 2, 3, 4, 5]
        assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
        assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
        assert all(chunk.usage is None for chunk in chunks[:-1])
        assert llm.most > 1


async def test_streams_of_several_prompts_are_interleaved() -> None:
    async with bytes_model() as (_, llm, client):
        llm.gates = {"a": asyncio.Semaphore(1), "b": asyncio.Semaphore(0)}
        chunks = await client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=2, stream=True)
        order = []
        for prompt in ("b", "b", "a"):
            (choice,) = (await anext(chunks)).choices
            order.append((choice.index, choice.text))
            llm.gates[prompt].release()
        order += [(choice.index, choice.text) async for chunk in chunks for choice in chunk.choices]
        assert order[:3] == [(0, "A"), (1, "B"), (1, "B")]
        assert sorted(order[3:]) == [(0, ""), (0, "A"), (1, "")]


async def test_log_probabilities_and_echo() -> None:
    async with bytes_model() as (_, _, client):
        (choice,) = (await complete(client, "abc", max_tokens=2, logprobs=2, echo=True)).choices
        logprobs = choice.logprobs
        assert choice.text == "abcAB"
        assert logprobs is not None
        assert logprobs.tokens == ["a", "b", "c", "A", "B"]
        assert logprobs.text_offset == [0, 1, 2, 3, 4]
        assert logprobs.token_logprobs == [None, -0.5, -0.5, -0.5, -0.5]
        before = {"b": "a", "c": "b", "A": "@", "B": "A"}
        assert logprobs.top_logprobs == [None, *({token: -0.5, low: -1.5} for token, low in before.items())]
        pieces = [
            piece.choices[0].logprobs
            for piece in await stream(client, "abc", max_tokens=2, logprobs=2, echo=True)
            if piece.choices[0].logprobs
        ]
        assert [token for piece in pieces for token in piece.tokens or ()] == logprobs.tokens
        assert [offset for piece in pieces for offset in piece.text_offset or ()] == logprobs.text_offset


async def test_no_alternatives_are_the_token_alone() -> None:
    async with bytes_model() as (_, _, client):
        (choice,) = (await complete(client, "a", max_tokens=1, logprobs=0)).choices
        assert choice.logprobs is not None
        assert (choice.logprobs.token_logprobs, choice.logprobs.top_logprobs) == ([-0.5], [{"A": -0.5}])


@pytest.mark.parametrize("prompt", ["abé", [97, 98, 195, 169]])
async def test_a_prompt_is_scored_where_nothing_is_to_be_generated(prompt: Any) -> None:
    async with bytes_model() as (_, llm, client):
        fields: dict[str, Any] = {"max_tokens": 0, "echo": True, "logprobs": 1}
        completion = await complete(client, [prompt, prompt], **fields)
        for choice in completion.choices:
            assert (choice.text, choice.finish_reason) == ("abé", "length")
            assert choice.logprobs is not None
            assert choice.logprobs.tokens == ["a", "b", "bytes:\\xc3", "bytes:\\xa9"]
            assert choice.logprobs.text_offset == [0, 1, 2, 2]
            assert choice.logprobs.token_logprobs == [None, -0.5, -0.5, -0.5]
        assert completion.usage is not None
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (8, 0)
        assert texts_of(await stream(client, [prompt, prompt], **fields)) == {0: "abé", 1: "abé"}
        assert {request.operation for request in llm.requests} == {"score"}


async def test_what_follows_the_answer_and_the_best_of_several() -> None:
    async with bytes_model() as (_, llm, client):
        (choice,) = (await complete(client, "a", suffix="z", max_tokens=2)).choices
        assert choice.text == "AZ"
        (choice,) = (await complete(client, "a", best_of=3, max_tokens=1)).choices
        assert (choice.text, choice.logprobs, len(llm.requests)) == ("A", None, 1 + 3)


async def test_one_prompt_that_fails_fails_the_request_and_stops_the_others() -> None:
    async with bytes_model() as (_, llm, client):
        with pytest.raises(openai.InternalServerError, match="the provider is down"):
            await complete(client, ["abc", "!", "abc"], max_tokens=500)
        await until(lambda: not llm.running)
        llm.step = asyncio.Semaphore(2)
        chunks = await client.completions.create(model=MODEL, prompt=["abc", "b!"], max_tokens=500, stream=True)
        said = [(await anext(chunks)).choices[0].text for _ in range(2)]
        assert sorted(said) == ["A", "B"]
        llm.step.release()
        llm.step.release()
        with pytest.raises(openai.APIError, match="the provider is down"):
            async for _ in chunks:
                pass
        await until(lambda: not llm.running)
        assert llm.generated < 2 * 500


async def test_a_client_that_leaves_stops_all_prompts() -> None:
    async with bytes_model() as (_, llm, client):
        llm.step = asyncio.Semaphore(1)
        prompts = ["a"] * 40
        async with await client.completions.create(model=MODEL, prompt=prompts, max_tokens=9, stream=True) as chunks:
            assert (await anext(chunks)).choices[0].text == "A"
        await until(lambda: not llm.running)
        assert llm.generated <= 2
        assert len(llm.requests) < len(prompts)


@pytest.mark.parametrize(("capacity", "most"), [(2, 2), (256, 16)])
async def test_a_long_list_takes_the_room_that_there_is(capacity: int, most: int) -> None:
    """Neither refused for its length, nor more at a time than the processors work on and may wait for them."""
    async with bytes_model(capacity=capacity) as (_, llm, client):
        prompts = ["a", "b", "c"] * 30
        completion = await complete(client, prompts, max_tokens=1)
        assert [choice.text for choice in completion.choices] == [prompt.upper() for prompt in prompts]
        assert len(llm.requests) == 90
        assert 1 < llm.most <= most


async def test_a_key_has_as_many_prompts_side_by_side_as_answers() -> None:
    async with bytes_model(config=KEYED) as (it, llm, _), sdk(it.gateway, "right") as client:
        completion = await complete(client, ["a"] * 9, max_tokens=3)
        assert (len(completion.choices), llm.most) == (9, 2)
        with pytest.raises(openai.BadRequestError, match="this key may have 2 answers side by side"):
            await complete(client, ["a"], n=3)


async def test_a_model_for_conversations_takes_a_text_as_a_question_and_refuses_the_rest_by_name() -> None:
    async with open_sdk(llm=CountingLlm()) as (it, client):
        await until_listed(it.http)
        # An empty suffix asks for nothing that the model lacks.
        assert (await complete(client, "2", suffix="")).choices[0].text == "0 1 "
        (asked,) = it.llm.requests
        assert (asked.raw, asked.prompt) == (False, "2")
        for fields, lacks in (({"prompt": [1]}, "prompt_ids"), ({"echo": True}, "echo"), ({"suffix": "s"}, "suffix")):
            with pytest.raises(openai.BadRequestError, match=f"the model can't do this: {lacks};"):
                await complete(client, **{"prompt": "1", **fields})
        assert it.llm.requests == [asked]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [""]}, 400, "prompt"),
    ({"prompt": [[]]}, 400, "prompt"),
    ({"prompt": ["a", 1]}, 400, "prompt"),
    ({"prompt": [[1], 1]}, 400, "prompt"),
    ({"prompt": {"a": 1}}, 400, "prompt"),
    ({"prompt": [True]}, 400, "prompt[0]"),
    ({"prompt": [-1]}, 400, "prompt[0]"),
    ({"prompt": [[1, 2**40]]}, 400, "prompt[0][1]"),
    ({"prompt": ["a"] * 2049}, 400, "prompt"),
    ({"prompt": ["a"] * 20, "n": 128}, 400, "prompt"),
    ({"model": None}, 400, "model"),
    ({"model": "gpt-9"}, 404, "model"),
    ({"max_tokens": -1}, 400, "max_tokens"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": 0, "echo": True, "logprobs": 1, "n": 2}, 400, "max_tokens"),
    ({"logprobs": 6}, 400, "logprobs"),
    ({"logprobs": True}, 400, "logprobs"),
    ({"n": 0}, 400, "n"),
    ({"n": 2, "best_of": 1}, 400, "best_of"),
    ({"best_of": 2, "stream": True}, 400, "best_of"),
    ({"stop": ""}, 400, "stop"),
    ({"stop": [1]}, 400, "stop[0]"),
    ({"temperature": "hot"}, 400, "temperature"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"prompt_embeds": "x"}, 400, "prompt_embeds"),
    ({"prompt_logprobs": 1}, 400, "prompt_logprobs"),
    ({"return_token_ids": True}, 400, "return_token_ids"),
    ({"truncate_prompt_tokens": [1]}, 400, "truncate_prompt_tokens"),
    ({"add_special_tokens": False}, 400, "add_special_tokens"),
    ({"response_format": {"type": "xml"}}, 400, "response_format.type"),
    ({"logit_bias": {"1": 1}}, 400, ""),
]


async def test_bad_input_is_refused_in_the_shape_of_the_sdk() -> None:
    async with bytes_model() as (it, llm, _):
        for fields, status, param in REFUSED:
            body = {"model": MODEL, "prompt": "a", **fields}
            async with it.http.post("v1/completions", json=body) as response:
                told = (await response.json())["error"]
                assert (response.status, told["param"] or "") == (status, param), (fields, told)
                assert set(told) == {"message", "type", "param", "code"}
        for data in (b"", b"[]", b"{", b"\xff", b'"a"', b"null"):
            async with it.http.post("v1/completions", data=data) as response:
                assert (response.status, "error" in await response.json()) == (400, True)
        async with it.http.get("v1/completions") as response:
            assert (response.status, "error" in await response.json()) == (405, True)
        assert llm.requests == []


@pytest.mark.parametrize("asked", [{"prompt": ["a", "b", "c"]}, {"prompt": "a", "n": 3}, {"prompt": "a", "best_of": 3}])
async def test_each_prompt_and_each_answer_is_a_request_of_its_key(asked: dict[str, Any]) -> None:
    key = structs.replace(KEY, streams=0, requests_per_minute=4)
    config = structs.replace(KEYED, keys=(key,))
    async with bytes_model(config=config) as (it, llm, _), sdk(it.gateway, "right") as client:
        await complete(client, **asked)
        with pytest.raises(openai.RateLimitError) as refused:
            await complete(client, **asked)
        assert refused.value.response.headers["Retry-After"] == "30"
        assert len(llm.requests) <= 3
