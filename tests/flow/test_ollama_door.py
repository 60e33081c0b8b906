"""Ollama's door: its own Python package, unmodified, heads, what is ignored, and bad input in its shape."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from ollama import AsyncClient, Client, ResponseError

from tests.fakes.byte_llm import CONTEXT_TOKENS, ByteLlm
from tests.fakes.chat_llm import ChatLlm
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.turns_llm import Turn
from tests.flow.open_gateway import Opened, open_gateway, until_listed
from tg_base.llm import LlmChunk, LlmService
from tg_gateway.dialects.ollama.bodies import ChatBody
from tg_gateway.dialects.ollama.request import read_sampling
from tg_schema import COMMON_FEATURES, ImagePart, Message, Sampling, TextPart, ToolCall, ToolCallDelta, decode, encode
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import Unavailable
from tg_schema.text_completion import Reasoning

MODEL = "counting"
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


QUESTION = {"role": "user", "content": "ab"}
CALLER = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}


async def post(it: Opened, path: str, body: object) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(path, data=data) as response:
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def test_heads_and_what_is_ignored() -> None:
    async with open_gateway(llm=ByteLlm(), listed=True) as it:
        options = {"num_ctx": 1, "mirostat": 2, "temperature": 0}
        asked = {"model": MODEL, "prompt": "ab", "options": options, "keep_alive": 5, "unheard_of": 1}
        ignored = "keep_alive, options.mirostat, options.num_ctx, unheard_of"
        async with it.http.post("api/generate", json=asked, headers={"X-Request-Id": "r-1"}) as response:
            assert (response.status, response.content_type) == (200, "application/x-ndjson")
            assert response.headers["X-Tokengrid-Ignored"] == ignored
            assert (response.headers["X-Request-Id"], response.headers["Cache-Control"]) == ("r-1", "no-cache")
            lines = [json.loads(line) for line in (await response.read()).splitlines()]
            assert [line["done"] for line in lines] == [False] * 4 + [True]
        async with it.http.post("api/generate", json={**asked, "stream": False}) as response:
            assert response.content_type == "application/json"
            assert response.headers["X-Tokengrid-Ignored"] == ignored
        async with it.http.post("api/embed", json={"model": MODEL, "input": "a", "options": options}) as response:
            assert response.headers["X-Tokengrid-Ignored"] == ", ".join(sorted(f"options.{name}" for name in options))


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [QUESTION], **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "a", **fields}


REFUSED: list[tuple[str, Any, int, str]] = [
    ("chat", b"", 400, "not valid JSON"),
    ("chat", b"[]", 400, "wrong field"),
    ("chat", b"\xff", 400, "not valid JSON"),
    ("chat", {"messages": [QUESTION]}, 400, "model is missing"),
    ("chat", chat(model=""), 400, "model is missing"),
    ("chat", chat(model=1), 400, "$.model"),
    ("chat", chat(model="nobody"), 404, "there is no model 'nobody'"),
    ("chat", chat(model="nobody:latest"), 404, "there is no model 'nobody:latest'"),
    ("chat", chat(messages="a"), 400, "$.messages"),
    ("chat", chat(messages=[1]), 400, "$.messages[0]"),
    ("chat", chat(messages=[{}]), 400, "role"),
    ("chat", chat(messages=[{"role": "robot"}]), 400, "messages[0].role must be one of"),
    ("chat", chat(messages=[{"role": "system", "content": "s"}]), 400, "at least one message"),
    ("chat", chat(messages=[QUESTION, {"role": "tool", "content": "x"}]), 400, "messages[1]: no call before it"),
    ("chat", chat(messages=[QUESTION, CALLER, {"role": "tool", "tool_name": "g"}]), 400, "messages[2]: no call"),
    ("chat", chat(messages=[{**QUESTION, "tool_calls": CALLER["tool_calls"]}]), 400, "only the assistant"),
    (
        "chat",
        chat(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]),
        400,
        "arguments",
    ),
    ("chat", chat(messages=[{**QUESTION, "images": ["aGVsbG8gd29ybGQh"]}]), 400, "messages[0].images[0] must be a PNG"),
    ("chat", chat(messages=[{**QUESTION, "images": ["?"]}]), 400, "images[0] must be an image in base64"),
    ("chat", chat(tools=[{"type": "search", "function": {"name": "f"}}]), 400, "tools[0].type"),
    ("chat", chat(tools=[{}]), 400, "tools[0]"),
    ("chat", chat(format="xml"), 400, "format must be"),
    ("chat", chat(format=1), 400, "$.format"),
    ("chat", chat(stream="yes"), 400, "$.stream"),
    ("chat", chat(think="hard"), 400, "$.think"),
    ("chat", chat(think=True), 400, "the model can't do this: reasoning"),
    ("chat", chat(top_logprobs=21), 400, "$.top_logprobs"),
    ("chat", chat(options=[]), 400, "$.options"),
    ("chat", chat(options={"temperature": -1}), 400, "$.options.temperature"),
    ("chat", chat(options={"top_p": 2}), 400, "$.options.top_p"),
    ("chat", chat(options={"num_predict": "all"}), 400, "$.options.num_predict"),
    ("chat", chat(options={"num_predict": 3.5}), 400, "$.options.num_predict"),
    ("chat", chat(options={"top_k": -2.0}), 400, "$.options.top_k"),
    ("chat", chat(options={"seed": 1e300}), 400, "$.options.seed"),
    ("chat", chat(options={"stop": [""]}), 400, "options.stop"),
    ("chat", chat(options={"min_p": 0.1}), 400, "the model can't do this: min_p"),
    ("generate", text(model="nobody", prompt=""), 404, "there is no model"),
    ("generate", text(prompt=["a"]), 400, "$.prompt"),
    ("generate", text(template="{{ .Prompt }}"), 400, "template is not supported"),
    ("generate", text(context=[1]), 400, "context is not supported"),
    ("generate", text(raw=True, system="s"), 400, "system: a prompt that is raw"),
    ("generate", text(suffix="z", images=["iVBORw0KGgoAAAAN"]), 400, "images: a prompt that is raw"),
    ("embed", {"model": MODEL}, 400, "input is missing"),
    ("embed", {"model": MODEL, "input": ["a", ""]}, 400, "input must not be empty"),
    ("embed", {"model": MODEL, "input": [1]}, 400, "$.input[0]"),
    ("embed", {"model": MODEL, "input": ["a"] * 2049}, 400, "input may have at most"),
    ("embed", {"model": MODEL, "input": "a", "dimensions": 0}, 400, "$.dimensions"),
    ("embed", {"model": MODEL, "input": "a", "dimensions": 2}, 400, "the model can't do this: dimensions"),
    ("embed", {"model": "nobody", "input": ""}, 404, "there is no model"),
    ("embeddings", {"model": MODEL}, 400, "prompt is missing"),
    ("embeddings", {"model": MODEL, "prompt": ["a"]}, 400, "$.prompt"),
    ("show", {}, 400, "model is missing"),
    ("show", {"name": "nobody"}, 404, "there is no model"),
    ("pull", {"model": "a"}, 501, "pull is not supported"),
    ("push", b"", 501, "push is not supported"),
    ("blobs/sha256:1", b"x", 501, "create is not supported"),
]


def test_whole_numbers_may_be_written_as_floats() -> None:
    body = decode(ChatBody, encode(chat(options={"num_predict": 3.0, "top_k": 4.0, "seed": 5e0})))
    sampling = read_sampling(body)
    assert sampling is not None
    told = sampling.max_tokens, sampling.top_k, sampling.seed
    assert (told, {type(number) for number in told}) == ((3, 4, 5), {int})
    exact = decode(ChatBody, encode(chat(options={"seed": 2**63 - 1})))
    assert read_sampling(exact) == Sampling(seed=2**63 - 1)


async def test_bad_input_is_refused_in_ollamas_shape() -> None:
    llm = ByteLlm()
    async with open_gateway(llm=llm, listed=True) as it:
        for path, body, status, words in REFUSED:
            got, told = await post(it, f"api/{path}", body)
            assert (got, set(told)) == (status, {"error"}), (path, body, told)
            assert words in told["error"], (path, body, told)
        _, told = await post(it, "api/generate", text(images=["?"]))
        assert told == {"error": "images[0] must be an image in base64"}
        async with it.http.get("api/chat") as response:
            assert (response.status, set(await response.json())) == (405, {"error"})
        assert llm.requests == []


async def test_a_model_of_text_alone_is_refused_by_name() -> None:
    llm = CountingLlm()
    llm.features = COMMON_FEATURES - {"tools"}
    async with open_gateway(llm=llm, listed=True) as it:
        for path, body, lacks in (
            ("embed", {"model": MODEL, "input": "a"}, "embed"),
            ("generate", text(raw=True), "raw"),
            ("generate", text(suffix="z"), "suffix"),
            ("chat", chat(tools=[{"function": {"name": "f"}}]), "tools"),
        ):
            status, told = await post(it, f"api/{path}", body)
            assert (status, told["error"].split(";")[0]) == (400, f"the model can't do this: {lacks}")
        assert (await post(it, "api/show", {"model": MODEL}))[1]["capabilities"] == ["completion", "vision"]
        assert llm.requests == []
