"""Anthropic's SDK, unmodified, before our door, and with the provider `anthropic` between two of them."""

import asyncio
import hashlib
from typing import Any

import anthropic
import msgspec
import pytest
from anthropic import AsyncAnthropic
from pydantic import BaseModel

from tests.fakes.messages_llm import CLAUDE, COUNTED, MessagesLlm
from tests.flow.anthropic_asking import HI, MODEL, Asking, open_asking, until_ready
from tests.flow.open_gateway import QUICK, open_gateway
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk, LlmService
from tg_flow.providers import open_provider
from tg_schema import Message, TextCompletionRequest, TextPart, TgError, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import (
    AccessDenied,
    BadRequest,
    ContentFilter,
    IncompleteStream,
    ProviderAuth,
    RateLimited,
    Timeout,
    TooLarge,
    Unavailable,
)

KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=2)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))
WEATHER: Any = {"name": "weather", "description": "of a town", "input_schema": {"type": "object", "properties": {}}}
CALLING = (
    LlmChunk(reasoning="I need "),
    LlmChunk(reasoning="the weather."),
    LlmChunk(signature="anthropic:AbC="),
    "I look",
    " it up.",
    ToolCallDelta(0, "toolu_1", "weather"),
    ToolCallDelta(0, arguments='{"town":'),
    ToolCallDelta(1, "toolu_2", "weather", '{"town"', "gemini:z"),
    ToolCallDelta(0, arguments='"Ulm"}'),
    ToolCallDelta(1, arguments=':"Rom"}'),
)
SUNNY = ("It is", " sunny.")


async def test_a_whole_answer() -> None:
    async with open_asking(SUNNY) as asking:
        message = await asking.ask()
        assert [block.text for block in message.content] == ["It is sunny."]
        assert (message.stop_reason, message.model, message.role) == ("end_turn", MODEL, "assistant")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 2)
        assert message._request_id


async def test_a_streamed_answer() -> None:
    async with open_asking(SUNNY) as asking:
        async with asking.sdk.messages.stream(model=MODEL, max_tokens=9, messages=[HI]) as stream:
            assert "".join([text async for text in stream.text_stream]) == "It is sunny."
            message = await stream.get_final_message()
        assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("end_turn", 10, 2)
        assert asking.llm.asked.streaming is True


async def test_the_synchronous_sdk() -> None:
    def ask() -> tuple[str, str]:
        whole = asking.sync.messages.create(model=MODEL, max_tokens=9, messages=[HI])
        with asking.sync.messages.stream(model=MODEL, max_tokens=9, messages=[HI]) as stream:
            return whole.content[0].text, stream.get_final_text()  # type: ignore[union-attr]

    async with open_asking(SUNNY) as asking:
        assert await asyncio.to_thread(ask) == ("It is sunny.", "It is sunny.")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_round_with_tools_brings_the_thinking_back(streaming: bool) -> None:
    async with open_asking(CALLING, SUNNY) as asking:
        asked: Any = {"model": MODEL, "max_tokens": 99, "tools": [WEATHER], "thinking": {"type": "adaptive"}}
        if streaming:
            async with asking.sdk.messages.stream(messages=[HI], **asked) as stream:
                message: Any = await stream.get_final_message()
        else:
            message = await asking.sdk.messages.create(messages=[HI], **asked)
        assert message.stop_reason == "tool_use"
        calls = [block for block in message.content if block.type == "tool_use"]
        assert [(call.id, call.input) for call in calls] == [
            ("toolu_1", {"town": "Ulm"}),
            ("toolu_2", {"town": "Rom"}),
        ]
        results: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": "sun"} for call in calls]
        turns: Any = [HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        final = await asking.sdk.messages.create(messages=turns, **asked)
        assert final.content[0].text == "It is sunny."
        assert asking.llm.asked.messages == (
            Message("user", "hi"),
            Message(
                "assistant",
                (ReasoningPart("I need the weather.", "anthropic:AbC="), TextPart("I look it up.")),
                (
                    ToolCall("toolu_1", "weather", '{"town":"Ulm"}'),
                    ToolCall("toolu_2", "weather", '{"town":"Rom"}', "gemini:z"),
                ),
            ),
            Message("tool", "sun", tool_call_id="toolu_1"),
            Message("tool", "sun", tool_call_id="toolu_2"),
        )


class Town(BaseModel):
    """A form of an answer."""

    name: str


async def test_an_answer_in_a_form() -> None:
    async with open_asking(['{"name":', '"Ulm"}']) as asking:
        parsed = await asking.sdk.messages.parse(model=MODEL, max_tokens=9, messages=[HI], output_format=Town)
        assert parsed.parsed_output == Town(name="Ulm")
        assert asking.llm.asked.schema is not None


async def test_beta_messages() -> None:
    async with open_asking(SUNNY) as asking:
        message = await asking.sdk.beta.messages.create(
            model=MODEL, max_tokens=9, messages=[HI], betas=["context-1m-2025-08-07"], service_tier="auto"
        )
        assert message.content[0].text == "It is sunny."  # type: ignore[union-attr]
        foreign = asking.llm.asked.foreign
        assert foreign is not None
        assert (foreign.fields, foreign.betas) == ({"service_tier": "auto"}, ("context-1m-2025-08-07",))


async def test_a_count_of_tokens() -> None:
    async with open_asking(SUNNY) as asking:
        counted = await asking.sdk.messages.count_tokens(model=MODEL, messages=[HI], tools=[WEATHER])
        assert counted.input_tokens == COUNTED
        assert asking.llm.asked.operation == "count-tokens"


async def test_models() -> None:
    async with open_asking(SUNNY) as asking:
        assert [model.id async for model in asking.sdk.models.list()] == [MODEL]
        assert (await asking.sdk.models.retrieve(MODEL)).display_name == MODEL
        with pytest.raises(anthropic.NotFoundError, match="no live processor"):
            await asking.sdk.models.retrieve("nobody")
        async with asking.it.http.get("/v1/models") as response:
            assert (await response.json())["object"] == "list"


@pytest.mark.parametrize(
    ("error", "kind", "status", "name"),
    [
        (BadRequest("no"), anthropic.BadRequestError, 400, "invalid_request_error"),
        (AccessDenied("no"), anthropic.PermissionDeniedError, 403, "permission_error"),
        (TooLarge("no"), anthropic.APIStatusError, 413, "request_too_large"),
        (ContentFilter("no"), anthropic.UnprocessableEntityError, 422, "invalid_request_error"),
        (RateLimited("no", retry_after=3), anthropic.RateLimitError, 429, "rate_limit_error"),
        (ProviderAuth("no"), anthropic.InternalServerError, 502, "api_error"),
        (IncompleteStream("no"), anthropic.InternalServerError, 502, "api_error"),
        (Timeout("no"), anthropic.InternalServerError, 504, "timeout_error"),
        (Unavailable("no"), anthropic.InternalServerError, 529, "overloaded_error"),
    ],
)
async def test_an_error_before_the_answer_raises_its_class(
    error: TgError, kind: type[anthropic.APIStatusError], status: int, name: str
) -> None:
    async with open_asking([error]) as asking:
        with pytest.raises(kind) as whole:
            await asking.ask()
        with pytest.raises(kind) as raised:
            await asking.ask(stream=True)
    failed = raised.value
    assert (failed.status_code, failed.type) == (whole.value.status_code, whole.value.type) == (status, name)
    assert isinstance(failed.body, dict)
    assert failed.body["error"] == {"type": name, "message": "no"}
    assert failed.body["request_id"] == failed.request_id == failed.response.headers["X-Request-Id"]
    assert failed.response.headers["x-should-retry"] == ("true" if error.retryable else "false")
    assert failed.response.headers.get("Retry-After") == ("3" if status == 429 else None)


async def test_an_error_in_mid_stream_is_raised_after_the_text() -> None:
    gate = asyncio.Event()
    said: list[str] = []

    async def read() -> None:
        async with asking.sdk.messages.stream(model=MODEL, max_tokens=9, messages=[HI]) as stream:
            async for text in stream.text_stream:
                said.append(text)
                gate.set()

    async with open_asking(["It is", gate, Unavailable("gone")]) as asking:
        with pytest.raises(anthropic.APIStatusError) as raised:
            await read()
    assert said == ["It is"]
    assert raised.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "gone"},
        "request_id": raised.value.response.headers["request-id"],
    }


@pytest.mark.parametrize("given", [{"api_key": "right"}, {"auth_token": "right", "api_key": None}])
async def test_a_key_in_either_header_and_its_limit(given: dict[str, str | None]) -> None:
    async with open_asking(SUNNY, config=LOCKED) as asking:
        with pytest.raises(anthropic.AuthenticationError):
            await asking.ask()
        async with anthropic.AsyncAnthropic(base_url=asking.it.gateway.url, max_retries=0, **given) as sdk:  # type: ignore[arg-type]
            for _ in range(2):
                await sdk.messages.create(model=MODEL, max_tokens=9, messages=[HI])
            with pytest.raises(anthropic.RateLimitError) as refused:
                await sdk.messages.create(model=MODEL, max_tokens=9, messages=[HI])
            assert int(refused.value.response.headers["Retry-After"]) > 0


async def test_a_feature_that_the_model_lacks_is_named() -> None:
    async with open_asking(llm=MessagesLlm(SUNNY, features=CLAUDE - {"reasoning", "count_tokens"})) as asking:
        with pytest.raises(anthropic.BadRequestError, match="can't do this: reasoning"):
            await asking.ask(thinking={"type": "enabled", "budget_tokens": 1024})
        with pytest.raises(anthropic.BadRequestError, match="can't do this: count_tokens"):
            await asking.sdk.messages.count_tokens(model=MODEL, messages=[HI])
        assert asking.llm.requests == []


SIGNATURE = "anthropic:AbC="
SIGNED_CALLING = (
    LlmChunk(reasoning="hm"),
    LlmChunk(signature=SIGNATURE),
    LlmChunk(signature="anthropic-redacted:ZZ=="),
    "I look.",
    ToolCallDelta(0, "toolu_1", "weather"),
    ToolCallDelta(0, arguments='{"town":"Ulm"}'),
)
MARK: Any = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ASKED: Any = {
    "model": MODEL,
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "be brief"} | MARK],
    "tools": [{"name": "weather", "description": "of a town", "input_schema": {"type": "object"}} | MARK],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}},
    "extra_body": {"context_management": {"edits": []}, "top_k": 3},
    "extra_headers": {"anthropic-beta": "a-1,b-2"},
}


async def open_claude(asking: Asking) -> LlmService:
    """The provider, with a gateway as Anthropic's API."""
    options = {"base_url": asking.it.gateway.url.rstrip("/"), "key_variable": "", "tries": 1}
    return await open_provider("anthropic", MODEL, options)


async def ask_twice(sdk: AsyncAnthropic) -> tuple[Any, Any]:
    """A call of a tool, and the answer to its result."""
    first: Any = await sdk.messages.create(messages=[HI], **ASKED)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun", "is_error": True} | MARK
    turns: Any = [HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    return first, await sdk.messages.create(messages=turns, **ASKED)


def compared(request: TextCompletionRequest) -> TextCompletionRequest:
    """Without what is said anew on each wire: whether it streams, and the order of fields."""
    return msgspec.structs.replace(request, streaming=None)


async def test_a_round_with_tools() -> None:
    async with open_asking(SIGNED_CALLING, ["Sunny."]) as asking:
        await ask_twice(asking.sdk)
        direct = [compared(request) for request in asking.llm.requests]
        asking.llm.requests.clear()
        claude = await open_claude(asking)
        async with (
            open_gateway(instead=claude, timing=QUICK) as it,
            AsyncAnthropic(api_key="any", base_url=it.gateway.url, max_retries=0) as sdk,
        ):
            await until_ready(it)
            first, second = await ask_twice(sdk)
            counted = await sdk.messages.count_tokens(model=MODEL, messages=[HI])
        await claude.aclose()
    assert [block.type for block in first.content] == ["thinking", "thinking", "text", "tool_use"]
    assert (first.content[0].thinking, first.content[0].signature) == ("hm", f"anthropic:{SIGNATURE}")
    assert (first.content[3].input, first.stop_reason) == ({"town": "Ulm"}, "tool_use")
    assert (second.content[0].text, second.stop_reason) == ("Sunny.", "end_turn")
    assert (second.usage.input_tokens, second.usage.output_tokens) == (10, 1)
    assert counted.input_tokens == COUNTED
    through = [compared(request) for request in asking.llm.requests if not request.operation]
    assert through == direct
    assert len(direct) == 2
