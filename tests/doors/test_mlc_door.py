"""MLC-LLM's REST API: what its published tests assert, written anew, and OpenAI's SDK before it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.fakes.byte_llm import ByteLlm
from tests.fakes.chat_llm import ChatLlm
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway, until_listed
from tg_base.llm import LlmService
from tg_gateway.dialects import MAX_WRITE_BYTES
from tg_schema import ToolCallDelta

MODEL = "counting"
QUESTION = [{"role": "user", "content": "ab"}]
ENDS = ("stop", "length")


@asynccontextmanager
async def door(llm: LlmService | None = None, *, model: str = MODEL, **options: Any) -> AsyncIterator[Opened]:
    """A gateway that knows who serves."""
    async with open_gateway(llm=CountingLlm(model), instead=llm or ByteLlm(), **options) as it:
        await until_listed(it.http)
        yield it


async def post(it: Opened, path: str, body: object) -> tuple[int, Any]:
    """Status and JSON; the JSON of all events, if it is a stream."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(f"mlc/v1/{path}", data=data) as response:
        content = await response.read()
        if response.content_type == "text/event-stream":
            *events, done, rest = content.split(b"\n\n")
            assert (done, rest) == (b"data: [DONE]", b"")
            return response.status, [json.loads(event.removeprefix(b"data: ")) for event in events]
        return response.status, json.loads(content)


async def ask(it: Opened, path: str, **fields: Any) -> Any:
    status, told = await post(it, path, {"model": MODEL, **fields})
    assert status == 200, told
    return told


def check_whole(
    told: Any, kind: str, *, model: str = MODEL, choices: int = 1, ends: Sequence[str] = ENDS, tokens: int | None = None
) -> list[str]:
    """What holds of each whole answer; its texts."""
    assert (told["model"], told["object"]) == (model, kind)
    assert isinstance(told["choices"], list)
    assert sorted(choice["index"] for choice in told["choices"]) == list(range(choices))
    texts = [""] * choices
    for choice in told["choices"]:
        assert choice["finish_reason"] in ends
        if kind == "chat.completion":
            assert choice["message"]["role"] == "assistant"
            texts[choice["index"]] = choice["message"]["content"]
        else:
            texts[choice["index"]] = choice["text"]
    usage = told["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 0
    assert tokens is None or usage["completion_tokens"] == tokens
    return texts


def check_stream(
    chunks: Any,
    kind: str,
    *,
    model: str = MODEL,
    choices: int = 1,
    ends: Sequence[str] = ENDS,
    tokens: int | None = None,
) -> list[str]:
    """What holds of the chunks of each stream; its texts."""
    assert chunks
    texts, finished = [""] * choices, [False] * choices
    for chunk in chunks:
        assert (chunk["model"], chunk["object"]) == (model, kind)
        assert isinstance(chunk["choices"], list)
        assert len(chunk["choices"]) <= choices
        assert "usage" in chunk
        for choice in chunk["choices"]:
            assert not finished[choice["index"]]
            if kind == "chat.completion.chunk":
                assert choice["delta"]["role"] == "assistant"
                assert isinstance(choice["delta"]["content"], str)
                texts[choice["index"]] += choice["delta"]["content"]
            else:
                texts[choice["index"]] += choice["text"]
            if choice["finish_reason"] is not None:
                assert choice["finish_reason"] in ends
                finished[choice["index"]] = True
    assert all(finished)
    if tokens is not None:
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == tokens
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    return texts


async def test_models() -> None:
    async with door() as it, it.http.get("mlc/v1/models") as response:
        told = await response.json()
        assert (response.status, told["object"]) == (200, "list")
        (model,) = told["data"]
        assert model.pop("features")
        assert model == {"id": MODEL, "object": "model", "created": 0, "owned_by": "MLC-LLM"}
        async with it.http.get(f"mlc/v1/models/{MODEL}") as one:
            assert (await one.json()).items() >= model.items()


@pytest.mark.parametrize(
    ("path", "fields", "kind"),
    [
        ("chat/completions", {"messages": QUESTION}, "chat.completion"),
        ("completions", {"prompt": "ab"}, "text_completion"),
    ],
)
async def test_answers(path: str, fields: dict[str, Any], kind: str) -> None:
    async with door() as it:
        asked = {**fields, "max_tokens": 5, "temperature": 0}
        chunks_of = {**asked, "stream": True, "stream_options": {"include_usage": True}}
        chunk_kind = f"{kind}.chunk" if kind == "chat.completion" else kind
        whole = await ask(it, path, **asked)
        assert check_whole(whole, kind, ends=("length",), tokens=5) == ["ABABA"]
        assert check_stream(await ask(it, path, **chunks_of), chunk_kind, ends=("length",), tokens=5) == ["ABABA"]
        bare = await ask(it, path, **asked, stream=True)
        assert check_stream(bare, chunk_kind) == ["ABABA"]
        assert len({chunk["id"] for chunk in bare}) == 1


async def test_several_choices() -> None:
    async with door(ChatLlm(["a", "b"])) as it:
        whole = await ask(it, "chat/completions", messages=QUESTION, n=3)
        assert check_whole(whole, "chat.completion", choices=3) == ["ab"] * 3
        chunks = await ask(it, "chat/completions", messages=QUESTION, n=3, stream=True)
        assert check_stream(chunks, "chat.completion.chunk", choices=3) == ["ab"] * 3


async def test_completions_echo_and_are_asked_by_ids() -> None:
    async with door() as it:
        whole = await ask(it, "completions", prompt=[97, 98], max_tokens=2, echo=True)
        assert check_whole(whole, "text_completion") == ["abAB"]
        whole = await ask(it, "completions", prompt="a", max_tokens=2, best_of=2, logprobs=1)
        assert check_whole(whole, "text_completion") == ["AA"]
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == 2


async def test_a_suffix_follows_each_answer_and_no_model_sees_it() -> None:
    """MLC's own tests assert it of the text's end; OpenAI's door asks the model for what stands between."""
    llm = ByteLlm()
    async with door(llm) as it:
        asked = {"prompt": ["a", "b"], "n": 2, "suffix": " end", "max_tokens": 2, "temperature": 0}
        texts = ["AA end", "AA end", "BB end", "BB end"]
        assert check_whole(await ask(it, "completions", **asked), "text_completion", choices=4) == texts
        chunks = await ask(it, "completions", **asked, stream=True)
        assert check_stream(chunks, "text_completion", choices=4) == texts
        assert [request.suffix for request in llm.requests] == [None] * len(llm.requests)
        status, told = await post(it, "completions", {"prompt": "a", "suffix": 5})
        assert (status, told["detail"][0]["loc"]) == (422, ["body", "suffix"])


async def test_the_user_names_the_request() -> None:
    async with door() as it:
        for stream in (False, True):
            for path, fields in (("chat/completions", {"messages": QUESTION}), ("completions", {"prompt": "ab"})):
                told = await ask(it, path, **fields, user='my "request"', stream=stream)
                assert {each["id"] for each in (told if stream else [told])} == {'my "request"'}


async def test_a_schema_that_is_text_and_the_debug_config() -> None:
    llm = ChatLlm(['{"a":1}'], features=ByteLlm.features | {"ignore_eos"})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    async with door(llm) as it:
        form: dict[str, Any] = {"type": "json_object", "schema": json.dumps(schema)}
        told = await ask(it, "chat/completions", messages=QUESTION, response_format=form)
        assert check_whole(told, "chat.completion") == ['{"a":1}']
        assert llm.asked.schema == schema
        await ask(it, "chat/completions", messages=QUESTION, response_format={"type": "json_object"})
        asked_again = llm.asked
        assert (asked_again.schema, asked_again.response_format) == (None, "json")
        asked = {"messages": QUESTION, "debug_config": {"ignore_eos": True, "pinned_system_prompt": False}}
        async with it.http.post("mlc/v1/chat/completions", json=asked) as response:
            assert (response.status, response.headers["X-Tokengrid-Ignored"]) == (200, "debug_config")
        assert llm.asked.sampling is not None
        assert llm.asked.sampling.ignore_eos
        async with it.http.post("mlc/v1/chat/completions", json=asked | {"debug_config": None}) as response:
            assert (response.status, "X-Tokengrid-Ignored" in response.headers) == (200, False)


async def test_tools_there_and_back() -> None:
    calls = (ToolCallDelta(0, "c", "f", '{"a":'), ToolCallDelta(0, arguments="1}"))
    llm = ChatLlm(calls, calls, ["done"], ["done"], calls[:1])
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with door(llm) as it:
        whole = await ask(it, "chat/completions", messages=QUESTION, tools=tools, tool_choice="auto")
        (choice,) = whole["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert (choice["finish_reason"], call["function"]) == ("tool_calls", {"name": "f", "arguments": {"a": 1}})
        chunks = await ask(it, "chat/completions", messages=QUESTION, tools=tools, stream=True)
        assert check_stream(chunks, "chat.completion.chunk", ends=("tool_calls",)) == ['["f(a=1)"]']
        assert all("tool_calls" not in choice["delta"] for chunk in chunks for choice in chunk["choices"])
        turns = [*QUESTION, choice["message"], {"role": "tool", "tool_call_id": "c", "content": "2"}]
        answered = await ask(it, "chat/completions", messages=turns)
        assert check_whole(answered, "chat.completion") == ["done"]
        assert answered["choices"][0]["message"]["tool_calls"] is None
        assert llm.asked.messages[1].tool_calls[0].arguments == '{"a":1}'
        # As OpenAI's clients have them.
        call["function"]["arguments"] = '{"b":2}'
        assert check_whole(await ask(it, "chat/completions", messages=turns), "chat.completion") == ["done"]
        assert llm.asked.messages[1].tool_calls[0].arguments == '{"b":2}'
        cut = (await ask(it, "chat/completions", messages=QUESTION, tools=tools))["choices"][0]["message"]
        assert cut["tool_calls"][0]["function"]["arguments"] == '{"a":', "half an object is none"


async def test_embeddings() -> None:
    async with door() as it:
        told = await ask(it, "embeddings", input=["ab", "c"])
        assert [each["embedding"] for each in told["data"]] == [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        assert told["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


async def test_openais_sdk() -> None:
    async with door() as it, AsyncOpenAI(base_url=f"{it.gateway.url}mlc/v1", api_key="any", max_retries=0) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 4}
        whole = await client.chat.completions.create(**asked)
        texts = [
            chunk.choices[0].delta.content async for chunk in await client.chat.completions.create(**asked, stream=True)
        ]
        assert "".join(texts) == whole.choices[0].message.content == "ABAB"
        assert (await client.embeddings.create(model=MODEL, input="ab")).data[0].embedding == [1, 1, 0]
        assert [model.owned_by async for model in client.models.list()] == ["MLC-LLM"]
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(**{**asked, "model": "nobody"})
        with pytest.raises(openai.UnprocessableEntityError):
            await client.chat.completions.create(**{**asked, "temperature": -1})


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": QUESTION, **fields}


async def read_events(it: Opened, path: str, body: object) -> list[Any]:
    """As the clients of MLC's documentation: each chunk of HTTP is one event, and [DONE] in one is the end."""
    async with it.http.post(f"mlc/v1/{path}", data=json.dumps(body)) as response:
        chunks, part = [], b""
        async for data, ended in response.content.iter_chunks():
            part += data
            if ended:
                chunks.append(part)
                part = b""
    *events, done = chunks
    assert done == b"data: [DONE]\n\n"
    return [json.loads(event[6:]) for event in events]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
async def test_each_event_of_a_stream_is_a_chunk_of_http(path: str) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    body = chat(**asked) if path.startswith("chat") else {"model": MODEL, "prompt": "ab", **asked}
    async with door(ByteLlm()) as it:
        choices = [event["choices"] for event in await read_events(it, path, body)]
    assert (choices[-2][0]["finish_reason"], choices[-1]) == ("length", [])


async def test_each_event_is_a_chunk_also_where_one_takes_several_writes() -> None:
    large = "x" * MAX_WRITE_BYTES
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    asked = chat(tools=tools, stream=True, stream_options={"include_usage": True})
    async with door(ChatLlm((ToolCallDelta(0, "c", "f", json.dumps({"a": large})),))) as it:
        *events, used = await read_events(it, "chat/completions", asked)
    assert check_stream(events, "chat.completion.chunk", ends=("tool_calls",)) == [json.dumps([f"f(a='{large}')"])]
    assert used["choices"] == []


CALL = b'{"id":"c","type":"function","function":{"name":"f","arguments":{"a":%b}}}'
CALLED = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[%b]}]}'


def chat_with_number(field: bytes, number: bytes) -> bytes:
    """A chat with a number that Python's JSON does not write."""
    return json.dumps(chat()).encode()[:-1] + b',"%b":%b}' % (field, number)


INVALID: list[tuple[str, Any, list[str | int], str]] = [
    ("chat/completions", b"", ["body"], "not valid JSON"),
    ("chat/completions", b"[]", ["body"], "wrong field"),
    ("chat/completions", b'{"messages": [{"role": "user", "content": "\xe9"}]}', ["body"], "not UTF-8"),
    ("completions", b'{"prompt": "\xe9"}', ["body"], "not UTF-8"),
    ("embeddings", b'{"input": "\xe9"}', ["body"], "not UTF-8"),
    ("chat/completions", chat(messages="a"), ["body", "messages"], "Expected `array`"),
    ("chat/completions", chat(messages=[]), ["body", "messages"], "at least one message"),
    ("chat/completions", chat(messages=[{"role": "robot"}]), ["body", "messages", 0, "role"], "must be one of"),
    ("chat/completions", chat(temperature=-1), ["body", "temperature"], ">= 0"),
    ("chat/completions", chat_with_number(b"temperature", b"1e999"), ["body", "temperature"], "out of range"),
    ("chat/completions", chat_with_number(b"temperature", b"9" * 400), ["body", "temperature"], "out of range"),
    ("chat/completions", chat_with_number(b"seed", b"1e999"), ["body", "seed"], "out of range"),
    ("chat/completions", chat_with_number(b"seed", b"9" * 400), ["body", "seed"], "int"),
    ("chat/completions", chat(frequency_penalty=3), ["body", "frequency_penalty"], "<= 2"),
    ("chat/completions", chat(presence_penalty=-3), ["body", "presence_penalty"], ">= -2"),
    ("chat/completions", chat(logit_bias={"1": 101}), ["body", "logit_bias"], "<= 100"),
    ("chat/completions", chat(top_logprobs=21, logprobs=True), ["body", "top_logprobs"], "<= 20"),
    ("chat/completions", chat(top_logprobs=2), ["body", "top_logprobs"], "logprobs = true"),
    ("chat/completions", chat(n=0), ["body", "n"], ">= 1"),
    ("chat/completions", chat(response_format={"schema": "{}"}), ["body", "response_format"], "type"),
    (
        "chat/completions",
        chat(response_format={"type": "json_object", "schema": "{"}),
        ["body", "response_format", "schema"],
        "must be a JSON schema, as text",
    ),
    (
        "chat/completions",
        chat(response_format={"type": "text", "schema": "{}"}),
        ["body", "response_format", "schema"],
        "json_object",
    ),
    ("chat/completions", chat(debug_config=[]), ["body", "debug_config"], "Expected `object"),
    ("chat/completions", chat(debug_config={"ignore_eos": 1}), ["body", "debug_config", "ignore_eos"], "bool"),
    ("completions", {"model": MODEL}, ["body", "prompt"], "prompt is missing"),
    ("completions", {"model": MODEL, "prompt": "a", "logprobs": 6}, ["body", "logprobs"], "<= 5"),
    ("embeddings", {"model": MODEL}, ["body", "input"], "input is missing"),
    ("embeddings", {"model": MODEL, "input": [[]]}, ["body", "input"], "must not be empty"),
]
REFUSED: list[tuple[str, Any, int, str]] = [
    ("chat/completions", chat(model="nobody"), 400, "there is no model 'nobody'"),
    ("completions", {"model": "nobody", "prompt": "a"}, 400, "there is no model"),
    ("embeddings", {"model": "nobody", "input": "a"}, 400, "there is no model"),
    ("chat/completions", chat(reasoning_effort="high"), 400, "the model can't do this: reasoning"),
    ("chat/completions", CALLED % (CALL % b"1e999"), 400, "Number out of range"),
    ("nowhere", {}, 404, "no such path"),
]


async def test_bad_input_is_refused_in_mlcs_shapes() -> None:
    """A wrong field as FastAPI does, everything else as text that is JSON again."""
    llm = ByteLlm()
    async with door(llm) as it:
        for path, body, place, words in INVALID:
            status, told = await post(it, path, body)
            assert status == 422, (body, told)
            (wrong,) = told["detail"]
            assert wrong["loc"] == place, (body, told)
            assert words in wrong["msg"], (body, told)
        for path, body, code, words in REFUSED:
            status, told = await post(it, path, body)
            assert (status, isinstance(told, str)) == (code, True), (body, told)
            error = json.loads(told)
            assert (error["object"], error["code"]) == ("error", code)
            assert words in error["message"]
        assert llm.requests == []
