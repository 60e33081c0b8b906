"""The door of OpenAI chat completions, as OpenAI's own SDK uses it: answers, and what is refused or fails."""

import asyncio
import hashlib
import json
from typing import Any

import msgspec
import openai
import pytest
from openai import AsyncOpenAI, LengthFinishReasonError, pydantic_function_tool
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from tests.fakes.chat_llm import ChatLlm
from tests.fakes.recorded_llm import SEVERAL, RecordedLlm
from tests.flow.open_gateway import open_gateway
from tests.flow.openai_sdk import MODEL, ask, blocking_sdk, open_sdk, sdk
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk
from tg_schema import ImagePart, Message, TextCompletionResponse, TextPart, TgError, Token, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import (
    ContentFilter,
    IncompleteStream,
    NotFound,
    ProviderAuth,
    RateLimited,
    Timeout,
    Unavailable,
)

CALLS = (
    ToolCallDelta(0, "call_a", "weather", '{"ci'),
    ToolCallDelta(0, arguments='ty":"Rome"}'),
    ToolCallDelta(1, "call_b", "weather", '{"city":"Oslo"}'),
)
ROME, OSLO = '{"city":"Rome"}', '{"city":"Oslo"}'
TOKENS = (Token(1, "He", -0.25, ((1, -0.25), (2, -2.5)), ("He", "Ha")), Token(3, "é", -0.5))


class Weather(BaseModel):
    """The weather in a city."""

    city: str


class Answer(BaseModel):
    number: int


TOOL = pydantic_function_tool(Weather, name="weather")


async def read(client: AsyncOpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    return [chunk async for chunk in await client.chat.completions.create(**ask("hello", **fields), stream=True)]


async def test_a_whole_answer() -> None:
    async with open_sdk() as (it, client):
        raw = await client.chat.completions.with_raw_response.create(**ask("2"), extra_headers={"X-Request-Id": "r-1"})
        assert raw.headers["x-request-id"] == "r-1"
        completion = raw.parse()
        assert completion._request_id == "r-1"
        assert (completion.object, completion.model) == ("chat.completion", MODEL)
        (choice,) = completion.choices
        assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "0 1 ", "stop")
        assert completion.usage is not None
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 2)
        assert completion.usage.total_tokens == 9
        (asked,) = it.llm.requests
        assert (asked.prompt, asked.streaming) == ("2", False)


async def test_a_stream() -> None:
    async with open_sdk() as (it, client):
        it.llm.step = asyncio.Semaphore(1)
        stream = await client.chat.completions.create(**ask("2"), stream=True, stream_options={"include_usage": True})
        first = await anext(aiter(stream))
        assert first.choices[0].delta.role == "assistant"
        it.llm.step.release()
        chunks = [first, *[chunk async for chunk in stream]]
        assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
        told = [choice for chunk in chunks for choice in chunk.choices]
        assert "".join(choice.delta.content or "" for choice in told) == "0 1 "
        assert [choice.finish_reason for choice in told if choice.finish_reason] == ["stop"]
        assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert all(chunk.model_fields_set >= {"usage"} for chunk in chunks)
        assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.total_tokens) == ([], 9)


async def test_a_stream_without_usage() -> None:
    async with open_sdk(instead=ChatLlm(["a", "b"])) as (_, client):
        chunks = await read(client)
        assert all("usage" not in chunk.model_fields_set for chunk in chunks)
        assert all(chunk.choices for chunk in chunks)


async def test_the_synchronous_client() -> None:
    async with open_gateway() as it:

        def talk() -> tuple[str | None, str]:
            with blocking_sdk(it.gateway) as client:
                whole = client.chat.completions.create(**ask("3"))
                with client.chat.completions.stream(**ask("3")) as stream:
                    texts = [event.delta for event in stream if event.type == "content.delta"]
                return whole.choices[0].message.content, "".join(texts)

        assert await asyncio.to_thread(talk) == ("0 1 2 ", "0 1 2 ")


async def test_models_are_those_that_can_be_asked() -> None:
    config = GatewayConfig(port=0, drain=0.05, aliases={"org/mate": "counting", "gone": "nobody"})
    async with open_sdk(config=config) as (it, client):
        await client.chat.completions.create(**ask("0", model="org/mate"))
        assert it.llm.requests[0].model == MODEL
        listed = [model async for model in client.models.list()]
        assert [(model.id, model.object) for model in listed] == [(MODEL, "model"), ("org/mate", "model")]
        assert (await client.models.retrieve("org/mate")).id == "org/mate"
        assert (await client.models.retrieve("counting:soft")).id == "counting:soft"


async def test_tools_and_back() -> None:
    llm = ChatLlm([LlmChunk(reasoning="hm", signature="o:x"), *CALLS], ["It is warm."])
    async with open_sdk(instead=llm) as (_, client):
        question: Any = {"role": "user", "content": "the weather?"}
        asked: dict[str, Any] = {"model": MODEL, "tools": [TOOL], "tool_choice": "required"}
        async with client.chat.completions.stream(**asked, messages=[question]) as stream:
            done = [event.arguments async for event in stream if event.type == "tool_calls.function.arguments.done"]
            (choice,) = (await stream.get_final_completion()).choices
        assert done == [ROME, OSLO]
        assert choice.finish_reason == "tool_calls"
        calls = choice.message.tool_calls or []
        assert [(call.id, call.function.name) for call in calls] == [("call_a", "weather"), ("call_b", "weather")]
        assert [call.function.parsed_arguments for call in calls] == [Weather(city="Rome"), Weather(city="Oslo")]
        assert llm.asked.tool_choice == "required"
        turn: Any = choice.message.to_dict()
        results: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": "21"} for call in calls]
        answer = await client.chat.completions.create(model=MODEL, messages=[question, turn, *results], tools=[TOOL])
        assert answer.choices[0].message.content == "It is warm."
    assert llm.asked.messages == (
        Message("user", "the weather?"),
        Message(
            "assistant",
            (ReasoningPart("hm", "o:x"),),
            (ToolCall("call_a", "weather", ROME), ToolCall("call_b", "weather", OSLO)),
        ),
        Message("tool", "21", tool_call_id="call_a"),
        Message("tool", "21", tool_call_id="call_b"),
    )


async def test_whole_tool_calls() -> None:
    async with open_sdk(instead=ChatLlm(CALLS)) as (_, client):
        (choice,) = (await client.chat.completions.create(**ask("hello", tools=[TOOL]))).choices
        assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")
        assert [call.to_dict() for call in choice.message.tool_calls or []] == [
            {"id": name, "type": "function", "function": {"name": "weather", "arguments": arguments}}
            for name, arguments in (("call_a", ROME), ("call_b", OSLO))
        ]


async def test_parse() -> None:
    llm = ChatLlm(['{"number"', ": 4}"])
    async with open_sdk(instead=llm) as (_, client):
        completion = await client.chat.completions.parse(**ask("a number"), response_format=Answer)
        assert completion.choices[0].message.parsed == Answer(number=4)
        assert llm.asked.schema is not None
        assert llm.asked.schema["required"] == ["number"]
        async with client.chat.completions.stream(**ask("a number"), response_format=Answer) as stream:
            assert (await stream.get_final_completion()).choices[0].message.parsed == Answer(number=4)


async def test_parse_of_an_answer_that_was_cut_off() -> None:
    llm = ChatLlm([LlmChunk('{"num', out_token=1, finish_reason="length")])
    async with open_sdk(instead=llm) as (_, client):
        with pytest.raises(LengthFinishReasonError):
            await client.chat.completions.parse(**ask("a number"), response_format=Answer)


async def test_json_objects() -> None:
    llm = ChatLlm(['{"a": 1}'])
    async with open_sdk(instead=llm) as (_, client):
        completion = await client.chat.completions.create(**ask("json"), response_format={"type": "json_object"})
        assert json.loads(completion.choices[0].message.content or "") == {"a": 1}
        assert llm.asked.response_format == "json"


async def test_log_probabilities() -> None:
    llm = ChatLlm([LlmChunk("He", tokens=TOKENS[:1]), LlmChunk("é", tokens=TOKENS[1:])])
    async with open_sdk(instead=llm) as (_, client):
        whole = (await client.chat.completions.create(**ask("a", logprobs=True, top_logprobs=2))).choices[0].logprobs
        assert llm.asked.sampling is not None
        assert llm.asked.sampling.logprobs == 2
        assert whole is not None
        told = whole.content or []
        assert [(token.token, token.logprob, token.bytes) for token in told] == [
            ("He", -0.25, [72, 101]),
            ("é", -0.5, [195, 169]),
        ]
        assert [(top.token, top.logprob, top.bytes) for top in told[0].top_logprobs] == [
            ("He", -0.25, [72, 101]),
            ("Ha", -2.5, [72, 97]),
        ]
        async with client.chat.completions.stream(**ask("a", logprobs=True, top_logprobs=2)) as stream:
            events = [event.content async for event in stream if event.type == "logprobs.content.done"]
        assert events == [told]


async def test_several_choices() -> None:
    llm = RecordedLlm(*SEVERAL)
    async with open_sdk(instead=llm) as (_, client):
        completion = await client.chat.completions.create(**ask("a", n=2))
        async with client.chat.completions.stream(**ask("a", n=2), stream_options={"include_usage": True}) as stream:
            await stream.until_done()
            streamed = stream.current_completion_snapshot
    for each in (completion, streamed):
        assert [choice.index for choice in each.choices] == [0, 1]
        assert [choice.finish_reason for choice in each.choices] == ["stop", "length"]
        assert [choice.message.content for choice in each.choices] == ["one two", "uno"]
        thoughts = [(choice.message.model_extra or {}).get("reasoning_content") for choice in each.choices]
        assert thoughts == ["hmso", None]
        assert each.usage is not None
        assert each.usage.completion_tokens_details is not None
        assert (each.usage.total_tokens, each.usage.completion_tokens_details.reasoning_tokens) == (14, 2)
    assert llm.requests[0].sampling is not None
    assert llm.requests[0].sampling.n == 2


async def test_thinking_comes_and_goes_back() -> None:
    llm = ChatLlm([LlmChunk(reasoning="let me "), LlmChunk(reasoning="see"), "four"], ["ok"])
    async with open_sdk(instead=llm) as (_, client):
        chunks = await read(client, reasoning_effort="low")
        thought = "".join((chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "") for chunk in chunks)
        assert thought == "let me see"
        turn: Any = {"role": "assistant", "content": "four", "reasoning_content": thought}
        await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "2 + 2?"}, turn, {"role": "user", "content": "sure?"}]
        )
    assert llm.requests[0].reasoning is not None
    assert llm.requests[0].reasoning.effort == "low"
    assert llm.asked.messages[1].content == (ReasoningPart("let me see"), TextPart("four"))


async def test_images_and_instructions() -> None:
    llm = ChatLlm(["a cat"])
    png = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    link = {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}}
    messages: list[Any] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "what?"}, png, link]},
    ]
    async with open_sdk(instead=llm) as (_, client):
        completion = await client.chat.completions.create(model=MODEL, messages=messages, stop=["\n"], seed=3)
        assert completion.choices[0].message.content == "a cat"
    assert llm.asked.messages == (
        Message("developer", "be brief"),
        Message("user", (TextPart("what?"), ImagePart(data="aGk="), ImagePart(url="https://example.org/cat.jpg"))),
    )
    assert llm.asked.sampling is not None
    assert (llm.asked.sampling.stop, llm.asked.sampling.seed) == (("\n",), 3)


async def test_cached_and_written_tokens() -> None:
    record = TextCompletionResponse(
        response="a", in_token=9, out_token=1, cached_token=4, cache_write_token=2, finish_reason="stop",
        end_of_stream=True,
    )  # fmt: skip
    async with open_sdk(instead=RecordedLlm(record)) as (_, client):
        usage = (await client.chat.completions.create(**ask("a"))).usage
        assert usage is not None
        assert usage.prompt_tokens == 9
        assert usage.prompt_tokens_details is not None
        assert (usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens_details.cache_write_tokens) == (4, 2)


async def test_many_side_by_side_and_abandoned() -> None:
    async with open_gateway() as it, sdk(it.gateway) as client:
        it.llm.step = asyncio.Semaphore(0)
        asking = [asyncio.create_task(client.chat.completions.create(**ask("9"), stream=True)) for _ in range(50)]
        await it.llm.started.wait()
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        it.llm.step = None
        completion = await asyncio.wait_for(client.chat.completions.create(**ask("1")), 5)
        assert completion.choices[0].message.content == "0 "


CHAT = "/v1/chat/completions"
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=2)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))
INVALID = "invalid_request_error"


def fields_of(error: openai.APIError) -> tuple[str | None, str | None, str | None]:
    return error.type, error.param, error.code


@pytest.mark.parametrize(
    ("fields", "kind", "told", "says"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, (INVALID, "model", "model_not_found"), "there are: counting"),
        ({"max_tokens": 0}, openai.BadRequestError, (INVALID, "max_tokens", "invalid_value"), ">= 1"),
        ({"n": 1000}, openai.BadRequestError, (INVALID, "n", "invalid_value"), "<= 128"),
        (
            {"logit_bias": {"1": 1}},
            openai.BadRequestError,
            (INVALID, None, None),
            "the model can't do this: logit_bias;",
        ),
        ({"temperature": "hot"}, openai.BadRequestError, (INVALID, "temperature", "invalid_value"), "float"),
        (
            {"messages": []},
            openai.BadRequestError,
            (INVALID, "messages", "missing_required_parameter"),
            "send at least",
        ),
        (
            {"audio": {"format": "wav", "voice": "ash"}},
            openai.BadRequestError,
            (INVALID, "audio", "unsupported_parameter"),
            "not supported",
        ),
        ({"tool_choice": "required"}, openai.BadRequestError, (INVALID, "tool_choice", "invalid_value"), "tool_choice"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_bad_request(
    fields: dict[str, Any],
    kind: type[openai.APIStatusError],
    told: tuple[str | None, str | None, str | None],
    says: str,
    streaming: bool,
) -> None:
    async with open_sdk() as (_, client):
        with pytest.raises(kind) as raised:
            await client.chat.completions.create(**{**ask("1"), **fields, "stream": streaming})
        assert fields_of(raised.value) == told
        assert says in raised.value.message
        assert raised.value.response.headers["x-should-retry"] == "false"
        assert raised.value.request_id
        assert (await client.chat.completions.create(**ask("1"))).choices[0].message.content == "0 "


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", CHAT, b"{", 400, None),
        ("POST", CHAT, b"\xff", 400, None),
        ("POST", CHAT, b"", 400, None),
        ("POST", CHAT, b"[]", 400, None),
        ("POST", CHAT, b"{}", 400, "missing_required_parameter"),
        ("POST", CHAT, b'{"model": "%b"}' % (b"x" * 200), 413, "request_too_large"),
        ("GET", CHAT, b"", 405, None),
        ("DELETE", "/v1/models/counting", b"", 405, None),
        ("GET", "/v1/models/nobody", b"", 404, "model_not_found"),
        ("POST", "/v1/completions/none", b"{}", 404, None),
        ("GET", "/v1/chat/completions/chatcmpl-1", b"", 404, None),
    ],
)
async def test_what_no_sdk_sends(method: str, path: str, body: bytes, status: int, code: str | None) -> None:
    config = GatewayConfig(port=0, drain=0.05, body_limit=100, large_body_limit=100)
    async with open_gateway(config) as it:
        for content_type in ("application/json", "text/plain", "image/png"):
            async with it.http.request(method, path, data=body, headers={"Content-Type": content_type}) as response:
                assert (response.status, response.content_type) == (status, "application/json")
                error = json.loads(await response.read())["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert (error["type"], error["code"]) == (INVALID, code)


async def test_keys_and_their_limits() -> None:
    async with open_gateway(LOCKED) as it, sdk(it.gateway, "wrong") as stranger, sdk(it.gateway, "right") as client:
        with pytest.raises(openai.AuthenticationError) as unknown:
            await stranger.chat.completions.create(**ask("1"))
        assert fields_of(unknown.value) == (INVALID, None, "invalid_api_key")
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
        for _ in range(2):
            await client.chat.completions.create(**ask("1"))
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(**ask("1"), stream=True)
        assert fields_of(limited.value) == ("rate_limit_error", None, "rate_limit_exceeded")
        headers = limited.value.response.headers
        assert (int(headers["retry-after"]) > 0, headers["x-should-retry"]) == (True, "true")


async def test_more_answers_than_a_key_may_have_side_by_side() -> None:
    key = msgspec.structs.replace(KEY, streams=2)
    async with open_gateway(GatewayConfig(port=0, keys=(key,))) as it, sdk(it.gateway, "right") as client:
        with pytest.raises(openai.BadRequestError, match="this key may have 2 answers side by side"):
            await client.chat.completions.create(**ask("1"), n=3, stream=True)
        assert len((await client.chat.completions.create(**ask("1"), n=2)).choices) == 2


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (RateLimited("slow down", retry_after=60), openai.RateLimitError, (429, "rate_limit_exceeded", "true")),
        (ContentFilter("not this"), openai.UnprocessableEntityError, (422, "content_filter", "false")),
        (NotFound("no such model there"), openai.NotFoundError, (404, "model_not_found", "false")),
        (ProviderAuth("its key is wrong"), openai.InternalServerError, (502, "provider_auth", "false")),
        (IncompleteStream("cut"), openai.InternalServerError, (502, "incomplete_stream", "true")),
        (Unavailable("down"), openai.InternalServerError, (503, "unavailable", "true")),
        (Timeout("slow"), openai.InternalServerError, (504, "timeout", "true")),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_provider_that_fails_before_its_first_word(
    error: TgError, kind: type[openai.APIStatusError], told: tuple[int, str, str], streaming: bool
) -> None:
    async with open_sdk(instead=ChatLlm([error])) as (_, client):
        with pytest.raises(kind) as raised:
            await client.chat.completions.create(**ask("1"), stream=streaming)
        headers = raised.value.response.headers
        assert (raised.value.status_code, raised.value.code, headers["x-should-retry"]) == told
        assert headers.get("retry-after") == ("60" if error.retry_after else None)


async def test_the_sdk_tries_again_where_that_makes_sense() -> None:
    llm = ChatLlm([ProviderAuth("its key is wrong")], [RateLimited("slow down", retry_after=0.1)], ["ok"])
    async with open_gateway(instead=llm) as it, sdk(it.gateway, max_retries=2) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**ask("1"))
        assert len(llm.requests) == 1
        assert (await client.chat.completions.create(**ask("1"))).choices[0].message.content == "ok"
        assert len(llm.requests) == 3


async def test_a_provider_that_fails_in_mid_stream() -> None:
    async with open_sdk(instead=ChatLlm(["one ", "two", Unavailable("down")])) as (_, client):
        chunks = aiter(await client.chat.completions.create(**ask("1"), stream=True))
        text = ""
        while text != "one two":
            text += (await anext(chunks)).choices[0].delta.content or ""
        with pytest.raises(openai.APIError, match="down") as raised:
            await anext(chunks)
        assert fields_of(raised.value) == ("server_error", None, "unavailable")
