"""What goes wrong before and in an answer: the class that OpenAI's SDK raises, and the object that it carries."""

import asyncio
import hashlib
import json
from typing import Any

import msgspec
import openai
import pytest
from aiohttp import ClientPayloadError

from tests.fakes.chat_llm import ChatLlm
from tests.fakes.endless_llm import EndlessLlm
from tests.fakes.failing_llm import FailingLlm
from tests.flow.narrow_gateway import narrow_gateway
from tests.flow.open_gateway import open_gateway
from tests.flow.openai_sdk import MODEL, ask, open_sdk, sdk
from tests.flow.raw_http import raw_connection
from tests.within import within
from tg_base.config import ApiKey, GatewayConfig
from tg_schema import TgError
from tg_schema.errors import (
    ContentFilter,
    IncompleteStream,
    NotFound,
    ProviderAuth,
    RateLimited,
    Timeout,
    Unavailable,
)

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


async def test_a_page_of_another_origin() -> None:
    async with open_sdk() as (_, client):
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await client.chat.completions.create(**ask("1"), extra_headers={"Origin": "https://elsewhere.example"})
        assert fields_of(refused.value) == (INVALID, None, None)


async def test_a_full_queue() -> None:
    async with narrow_gateway(capacity=1, queue=0) as it, sdk(it.gateway) as client:
        it.llm.step = asyncio.Semaphore(0)
        running = asyncio.create_task(client.chat.completions.create(**ask("1")))
        await it.llm.started.wait()
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**ask("1"))
        headers = refused.value.response.headers
        assert (int(headers["retry-after"]) > 0, headers["x-should-retry"]) == (True, "true")
        it.llm.step.release()
        assert (await running).choices[0].message.content == "0 "


async def test_draining() -> None:
    async with open_gateway(GatewayConfig(port=0, drain=5)) as it, sdk(it.gateway) as client:
        it.llm.step = asyncio.Semaphore(1)
        stream = await client.chat.completions.create(**ask("2"), stream=True)
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        async with it.http.get("/health") as response:
            assert response.status == 200
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(**ask("1"))
        assert refused.value.status_code == 503
        assert fields_of(refused.value) == ("server_error", None, "unavailable")
        assert refused.value.response.headers["retry-after"] == "1"
        it.llm.step.release()
        assert [chunk async for chunk in stream][-1].choices[0].finish_reason == "stop"
        await leaving


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


async def test_after_a_failure_the_body_breaks() -> None:
    """A clean end would be a whole answer to a client that knows no event of an error."""
    body = {**ask("1"), "stream": True}
    async with open_gateway(llm=FailingLlm()) as it:
        async with it.http.post(CHAT, json=body) as response:
            with pytest.raises(ClientPayloadError):
                await response.read()
        async with raw_connection(it.address) as raw:
            raw.post(CHAT, json.dumps(body).encode())
            answer = await raw.rest()
    assert b"[DONE]" not in answer
    assert answer.count(b'data: {"error":{"message":') == 1
    assert not answer.endswith(b"0\r\n\r\n")


async def test_a_whole_answer_without_end_is_stopped() -> None:
    llm = EndlessLlm()
    llm.model = MODEL
    async with open_sdk(instead=llm) as (_, client):
        with pytest.raises(openai.APIStatusError) as raised:
            await client.chat.completions.create(**ask("1"))
        assert (raised.value.status_code, raised.value.code) == (413, "request_too_large")
        await within(1, llm.stopped.wait())


async def test_draining_cuts_what_takes_too_long() -> None:
    async with open_gateway(GatewayConfig(port=0, drain=0.01)) as it, sdk(it.gateway) as client:
        it.llm.step = asyncio.Semaphore(1)
        stream = await client.chat.completions.create(**ask("2"), stream=True)
        assert (await anext(aiter(stream))).choices[0].delta.content == "0 "
        await it.gateway.__aexit__(None, None, None)
        with pytest.raises(openai.APIError, match="shutting down"):
            await anext(aiter(stream))
        await within(1, it.llm.stopped.wait())
