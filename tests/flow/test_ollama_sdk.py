"""Ollama's own Python package, unmodified, before a gateway that listens, the bus and a processor."""

import asyncio
import hashlib
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from ollama import AsyncClient, Client, ResponseError

from tests.fakes.byte_llm import CONTEXT_TOKENS, ByteLlm
from tests.fakes.chat_llm import ChatLlm
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import Opened, open_gateway, until_listed
from tests.until import until
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmChunk, LlmService
from tg_schema import ImagePart, Message, TextPart, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import Unavailable
from tg_schema.text_completion import Reasoning

MODEL = "counting"
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest())
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


@asynccontextmanager
async def clients(
    llm: LlmService | None = None, *, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[Opened, AsyncClient]]:
    """A gateway that knows who serves, and the asynchronous client."""
    async with open_gateway(instead=llm or ByteLlm(), **options) as it:
        if not options:
            await until_listed(it.http)
        async with AsyncClient(it.gateway.url, headers=headers) as client:
            yield it, client


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def gather(parts: Any) -> list[Any]:
    return [part async for part in parts]


async def test_a_chat_whole_and_streamed() -> None:
    async with clients() as (_, client):
        whole = await client.chat(f"{MODEL}:latest", ask("abc"))
        assert (whole.model, whole.message.role, whole.message.content) == (f"{MODEL}:latest", "assistant", "ABCA")
        assert (whole.done, whole.done_reason) == (True, "length")
        assert (whole.prompt_eval_count, whole.eval_count) == (3, 4)
        *parts, last = await gather(await client.chat(MODEL, ask("abc"), stream=True))
        assert "".join(part.message.content for part in parts) == "ABCA"
        assert not any(part.done for part in parts)
        assert (last.done, last.done_reason, last.message.content) == (True, "length", "")
        assert (last.prompt_eval_count, last.eval_count) == (3, 4)
        for end in (whole, last):
            total, load, prompt, answer = (end[name] for name in DURATIONS)
            assert (total, load, min(prompt, answer) >= 0) == (prompt + answer, 0, True)
        assert last.prompt_eval_duration > 0
        assert datetime.fromisoformat(last.created_at or "") <= datetime.now(UTC)


async def test_a_text_its_suffix_and_its_tokens() -> None:
    llm = ByteLlm()
    async with clients(llm) as (_, client):
        options = {"num_predict": 3, "num_gpu": 1, "seed": 1, "stop": ["x"]}
        whole = await client.generate(MODEL, "ab", options=options, logprobs=True, top_logprobs=2)
        assert (whole.response, whole.done_reason, whole.context) == ("ABA", "length", None)
        tokens = whole.logprobs or ()
        assert [(token.token, token.logprob, len(token.top_logprobs or ())) for token in tokens] == [
            ("A", -0.5, 2),
            ("B", -0.5, 2),
            ("A", -0.5, 2),
        ]
        parts = await gather(await client.generate(MODEL, "ab", "yz", stream=True, options={"num_predict": 4}))
        assert "".join(part.response for part in parts) == "ABYZ"
        await client.generate(MODEL, "ab", raw=True)
        assert [(each.prompt, each.raw, each.suffix) for each in llm.requests] == [
            ("ab", False, None),
            ("ab", True, "yz"),
            ("ab", True, None),
        ]


async def test_the_blocking_client() -> None:
    async with clients() as (it, _):

        def talk() -> tuple[str, str, list[str], list[float], str]:
            with Client(it.gateway.url) as client:
                whole = client.chat(MODEL, ask("ab"))
                parts = client.generate(MODEL, "ab\u2028é", stream=True)
                text = "".join(part.response or "" for part in parts)
                names = [model.model or "" for model in client.list().models]
                vectors = client.embed(MODEL, ["ab"]).embeddings
                with pytest.raises(ResponseError, match="there is no model 'nobody'") as caught:
                    client.chat("nobody", ask("a"))
                assert caught.value.status_code == 404
                return whole.message.content or "", text, names, list(vectors[0]), client.show(MODEL).template or ""

        said, text, names, vector, _ = await asyncio.to_thread(talk)
        assert (said, text[:2], names) == ("ABAB", "AB", [f"{MODEL}:latest"])
        assert vector == pytest.approx([0.5**0.5, 0.5**0.5, 0])


def weather(city: str) -> str:
    """The weather.

    Args:
        city: where
    """
    return f"rain in {city}"


async def test_tools_there_and_back() -> None:
    begun, rest = ToolCallDelta(0, "c-1", "weather", '{"city":\n'), ToolCallDelta(0, arguments='"Bern"}')
    calling: Turn = ["Let me see.", begun, rest, ToolCallDelta(1, None, "now")]
    llm = ChatLlm(calling, calling, ["It rains."])
    async with clients(llm) as (_, client):
        turns: list[Any] = ask("Weather?")
        whole = await client.chat(MODEL, turns, tools=[weather])
        assert whole.done_reason == "stop"
        parts = await gather(await client.chat(MODEL, turns, tools=[weather], stream=True))
        assert [call for part in parts for call in part.message.tool_calls or ()] == whole.message.tool_calls
        assert llm.requests[0].tools[0].parameters["properties"]["city"]["type"] == "string"
        made = whole.message.tool_calls or ()
        assert [(call.function.name, call.function.arguments) for call in made] == [
            ("weather", {"city": "Bern"}),
            ("now", {}),
        ]
        turns += [
            whole.message,
            {"role": "tool", "tool_name": "now", "content": "noon"},
            {"role": "tool", "tool_name": "weather", "content": weather("Bern")},
        ]
        assert (await client.chat(MODEL, turns, tools=[weather])).message.content == "It rains."
        first, second = (
            ToolCall("call-messages[1].0", "weather", '{"city":"Bern"}'),
            ToolCall("call-messages[1].1", "now"),
        )
        assert llm.asked.messages == (
            Message("user", "Weather?"),
            Message("assistant", "Let me see.", (first, second)),
            Message("tool", "noon", (), second.id, "now"),
            Message("tool", "rain in Bern", (), first.id, "weather"),
        )


async def test_thinking_images_and_forms() -> None:
    llm = ChatLlm([LlmChunk(reasoning="Well."), '{"a":1}'])
    async with clients(llm) as (_, client):
        parts = await gather(await client.chat(MODEL, ask("a"), think="high", stream=True))
        assert [part.message.thinking for part in parts if part.message.thinking] == ["Well."]
        assert llm.asked.reasoning == Reasoning("high")
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        whole = await client.chat(MODEL, [*ask("a"), parts[0].message, *ask("b")], format=schema, think=True)
        assert (whole.message.thinking, whole.message.content) == ("Well.", '{"a":1}')
        assert llm.asked.schema == schema
        assert llm.asked.messages[1].content == (ReasoningPart("Well."), TextPart('{"a":1}'))
        generated = await client.generate(MODEL, "What is it?", images=[b64decode(PNG)], format="json", think=False)
        assert (generated.response, generated.thinking) == ('{"a":1}', "Well.")
        (turn,) = llm.asked.messages
        assert turn.content == (TextPart("What is it?"), ImagePart(media_type="image/png", data=PNG))
        assert (llm.asked.response_format, llm.asked.reasoning) == ("json", Reasoning("none"))


async def test_vectors() -> None:
    llm = ByteLlm()
    async with clients(llm) as (_, client):
        made = await client.embed(MODEL, ["ab", "cc"], keep_alive="5m")
        assert [list(each) for each in made.embeddings] == [pytest.approx([0.5**0.5, 0.5**0.5, 0]), [0, 0, 1]]
        assert (made.model, made.prompt_eval_count, made.load_duration) == (MODEL, 4, 0)
        assert (made.total_duration or 0) > 0
        assert list((await client.embeddings(MODEL, "aab")).embedding) == [2, 1, 0]
        many = await client.embed(MODEL, ["a" * (number % 5 + 1) + "c" * (number % 3) for number in range(300)])
        assert len(many.embeddings) == 300
        asked = len(llm.requests)
        assert (await client.embed(MODEL, "")).embeddings == []
        assert (await client.embeddings(MODEL, "")).embedding == []
        assert len(llm.requests) == asked
        with pytest.raises(ResponseError, match="the model can't do this: truncate"):
            await client.embed(MODEL, "a", truncate=True)


async def test_what_can_be_asked() -> None:
    async with clients() as (it, client):
        (listed,) = (await client.list()).models
        (running,) = (await client.ps()).models
        assert listed.model == running.model == running.name == f"{MODEL}:latest"
        assert listed.digest == running.digest
        assert len(listed.digest or "") == 64
        shown = await client.show(MODEL)
        assert set(shown.capabilities or ()) == {"completion", "tools", "vision", "insert", "embedding"}
        info = shown.modelinfo or {}
        assert info[f"{info['general.architecture']}.context_length"] == CONTEXT_TOKENS
        async with it.http.get("api/version") as response:
            assert (await response.json())["version"].split(".")[0] == "0"


async def test_a_request_that_asks_nothing_loads() -> None:
    llm = ByteLlm()
    async with clients(llm) as (_, client):
        chat, text = await client.chat(MODEL), await client.generate(MODEL, keep_alive="5m")
        assert (chat.done_reason, chat.message.content, text.done_reason, text.response) == ("load", "", "load", "")
        (part,) = await gather(await client.chat(MODEL, stream=True))
        assert (part.done, part.done_reason) == (True, "load")
        stopped = [await client.generate(MODEL, keep_alive=kept) for kept in (0, 0.0, "0", "0s")]
        assert {each.done_reason for each in stopped} == {"unload"}
        with pytest.raises(ResponseError, match="there is no model"):
            await client.generate("nobody")
        assert llm.requests == []


async def test_what_would_change_the_models_is_refused() -> None:
    async with clients() as (_, client):
        for refused in (
            client.pull("llama3"),
            client.push("llama3"),
            client.create("mine", from_="llama3"),
            client.copy("llama3", "mine"),
            client.delete("llama3"),
        ):
            with pytest.raises(ResponseError, match="is not supported: the models of this server are") as caught:
                await refused
            assert caught.value.status_code == 501


async def test_failures_raise() -> None:
    down = Unavailable("the provider is down")
    go = asyncio.Event()
    async with clients(ChatLlm(["one ", go, down], [down])) as (_, client):
        parts = await client.chat(MODEL, ask("a"), stream=True)
        assert (await anext(parts)).message.content == "one "
        go.set()
        with pytest.raises(ResponseError, match="the provider is down"):
            await gather(parts)
        with pytest.raises(ResponseError) as caught:
            await client.chat(MODEL, ask("a"))
        assert (caught.value.error, caught.value.status_code) == ("the provider is down", 503)


async def test_a_client_that_leaves_stops_the_model() -> None:
    llm = ChatLlm(["one ", asyncio.Event()])
    async with clients(llm) as (_, client):
        parts: Any = await client.chat(MODEL, ask("a"), stream=True)
        assert (await anext(parts)).message.content == "one "
        assert llm.running == 1
        await parts.aclose()
        await until(lambda: not llm.running)


async def test_keys() -> None:
    async with clients(config=LOCKED, headers={"Authorization": "Bearer wrong"}) as (it, client):
        for refused in (client.list(), client.chat(MODEL, ask("a")), client.show(MODEL)):
            with pytest.raises(ResponseError) as caught:
                await refused
            assert caught.value.status_code == 401
        async with AsyncClient(it.gateway.url, headers={"Authorization": "Bearer right"}) as right:
            assert (await right.chat(MODEL, ask("ab"))).message.content == "ABAB"
