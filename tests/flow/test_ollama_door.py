"""Ollama's door over HTTP: heads, what is ignored, bad input in its shape, and the demo model."""

import json
from typing import Any

import pytest
from ollama import AsyncClient

from tests.fakes.byte_llm import ByteLlm
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway, until_listed
from tests.llama.demo_llm import opened
from tg_base.config import GatewayConfig
from tg_gateway.dialects.ollama.bodies import ChatBody
from tg_gateway.dialects.ollama.request import read_sampling
from tg_schema import COMMON_FEATURES, Sampling, decode, encode

MODEL = "counting"
SMALL = GatewayConfig(port=0, drain=0.05, body_limit=100, large_body_limit=100)
QUESTION = {"role": "user", "content": "ab"}
CALLER = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}

TEXTUAL = {"name": "f", "arguments": "{}"}


async def post(it: Opened, path: str, body: object) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(path, data=data) as response:
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def test_heads_and_what_is_ignored() -> None:
    async with open_gateway(llm=ByteLlm()) as it:
        await until_listed(it.http)
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
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        for path, body, status, words in REFUSED:
            got, told = await post(it, f"api/{path}", body)
            assert (got, set(told)) == (status, {"error"}), (path, body, told)
            assert words in told["error"], (path, body, told)
        _, told = await post(it, "api/generate", text(images=["?"]))
        assert told == {"error": "images[0] must be an image in base64"}
        async with it.http.get("api/chat") as response:
            assert (response.status, set(await response.json())) == (405, {"error"})
        assert llm.requests == []


async def test_what_is_too_large_is_refused_unread() -> None:
    async with open_gateway(SMALL, llm=ByteLlm()) as it:
        status, told = await post(it, "api/chat", chat(messages=[{**QUESTION, "content": "a" * 100}]))
        assert (status, set(told)) == (413, {"error"})


async def test_a_model_of_text_alone_is_refused_by_name() -> None:
    llm = CountingLlm()
    llm.features = COMMON_FEATURES - {"tools"}
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
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


@pytest.mark.model
async def test_the_demo_model_end_to_end() -> None:
    """One answer, whole, in lines and raw; log-probabilities, a schema, and vectors of length 1."""
    async with opened() as service, open_gateway(llm=CountingLlm("tinydemo"), instead=service) as it:
        await until_listed(it.http)
        async with AsyncClient(it.gateway.url) as client:
            options = {"temperature": 0, "num_predict": 16}
            whole = await client.chat("tinydemo", [QUESTION], options=options, logprobs=True, top_logprobs=2)
            lines = await client.chat("tinydemo:latest", [QUESTION], options=options, stream=True)
            parts = [part async for part in lines]
            assert whole.message.content
            assert "".join(part.message.content or "" for part in parts) == whole.message.content
            assert "".join(token.token for token in whole.logprobs or ()) == whole.message.content
            last = parts[-1]
            assert (last.done_reason, last.eval_count) == (whole.done_reason, whole.eval_count)
            assert (last.prompt_eval_count or 0) > 0
            assert (last.eval_duration or 0) > 0
            raw = await client.generate("tinydemo", "2 + 3 =", raw=True, options=options)
            assert raw.response
            schema = {"type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"]}
            formed = await client.generate("tinydemo", "Is Anna old?", format=schema, options={"temperature": 0})
            assert isinstance(json.loads(formed.response or "")["old"], bool)
            (vector,) = (await client.embed("tinydemo", "A topic is a stream.")).embeddings
            assert sum(value * value for value in vector) == pytest.approx(1)
            shown = await client.show("tinydemo")
            assert "embedding" in (shown.capabilities or ())
            assert (shown.modelinfo or {})["tokengrid.context_length"] > 0
