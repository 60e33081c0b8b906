"""Ollama's protocol on the wire: bodies to records, and records to lines and bodies, by tables."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.flow.open_gateway import CONFIG
from tg_gateway.dialects import Call, Catalogue, CompletionWriter, FoundModel, json_line
from tg_gateway.dialects.ollama.answer_shape import AnswerShape, ChatShape, GenerateShape
from tg_gateway.dialects.ollama.answer_writers import AnswerLineWriter, encode_answer
from tg_gateway.dialects.ollama.bodies import ChatBody, GenerateBody
from tg_gateway.dialects.ollama.messages import read_image
from tg_gateway.dialects.ollama.model_list import find_model
from tg_gateway.dialects.ollama.request import read_chat, read_generate
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    Token,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, NotFound, ProtocolError, TooLarge, Unavailable
from tg_schema.text_completion import Reasoning

Record = TextCompletionResponse
(ROUTE,) = CONFIG.routes("text-completion")
ABLE = FoundModel(ROUTE, "m", None, frozenset({"raw", "reasoning"}))
UNABLE = FoundModel(ROUTE, "m", None, frozenset({"history"}))
ASKED = TextCompletionRequest(model="m", streaming=True, prompt="p")
QUESTION = {"role": "user", "content": "p"}
PNG = "iVBORw0KGgoAAAAN"


def asked(**fields: Any) -> TextCompletionRequest:
    return msgspec.structs.replace(ASKED, **fields)


def said(*turns: Message, **fields: Any) -> TextCompletionRequest:
    return asked(prompt=None, messages=turns, **fields)


USER = Message("user", "p")
CALL = ToolCall("call-messages[1].0", "f", '{"a":1}')
CALLS = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"id": "x", "function": {"name": "g"}}]
CALLING = Message("assistant", "", (CALL, ToolCall("x", "g", "{}")))
CHATS: list[tuple[dict[str, Any], TextCompletionRequest]] = [
    ({}, ASKED),
    ({"stream": False}, asked(streaming=False)),
    ({"messages": [{"role": "system", "content": "s"}, QUESTION]}, asked(system="s")),
    (
        {"messages": [QUESTION, {"role": "assistant", "content": "a", "thinking": "t"}, QUESTION]},
        said(USER, Message("assistant", (ReasoningPart("t"), TextPart("a"))), USER),
    ),
    (
        {"messages": [{**QUESTION, "images": [PNG]}]},
        said(Message("user", (TextPart("p"), ImagePart(media_type="image/png", data=PNG)))),
    ),
    (
        {
            "messages": [
                QUESTION,
                {"role": "assistant", "tool_calls": CALLS},
                {"role": "tool", "content": "2", "tool_name": "g"},
                {"role": "tool", "content": "1"},
            ]
        },
        said(USER, CALLING, Message("tool", "2", (), "x", "g"), Message("tool", "1", (), CALL.id, "f")),
    ),
    (
        {"tools": [{"function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]},
        asked(tools=(Tool("f", "d", {"type": "object"}),)),
    ),
    ({"format": "json"}, asked(response_format="json")),
    ({"format": {"type": "object"}}, asked(schema={"type": "object"})),
    ({"format": "", "options": {}, "think": None, "keep_alive": "5m"}, ASKED),
    ({"options": {"num_predict": -1, "num_ctx": 4096, "mirostat": 1}}, ASKED),
    (
        {"options": {"num_predict": 5, "temperature": 0, "stop": ["x"]}},
        asked(sampling=Sampling(0, max_tokens=5, stop=("x",))),
    ),
    (
        {"options": {"top_k": 4, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.2, "repeat_penalty": 1.1, "seed": 3}},
        asked(sampling=Sampling(None, 0.5, 4, seed=3, min_p=0.1, typical_p=0.2, repetition_penalty=1.1)),
    ),
    (
        {"options": {"presence_penalty": 1, "frequency_penalty": -1, "stop": "x"}},
        asked(sampling=Sampling(presence_penalty=1, frequency_penalty=-1, stop=("x",))),
    ),
    ({"logprobs": True}, asked(sampling=Sampling(logprobs=0))),
    ({"logprobs": True, "top_logprobs": 3}, asked(sampling=Sampling(logprobs=3))),
    ({"top_logprobs": 3}, ASKED),
    ({"think": True}, asked(reasoning=Reasoning("medium"))),
    ({"think": "low"}, asked(reasoning=Reasoning("low"))),
    ({"think": False}, asked(reasoning=Reasoning("none"))),
]


@pytest.mark.parametrize(("fields", "request_"), CHATS)
def test_chats_become_records(fields: dict[str, Any], request_: TextCompletionRequest) -> None:
    body = msgspec.convert({"model": "m", "messages": [QUESTION], **fields}, ChatBody)
    assert read_chat(body, ABLE) == request_


def test_a_model_that_does_not_think_need_not_be_told_so() -> None:
    body = msgspec.convert({"messages": [QUESTION], "think": False}, ChatBody)
    assert read_chat(body, UNABLE) == ASKED


TEXTS: list[tuple[dict[str, Any], FoundModel, TextCompletionRequest]] = [
    ({}, ABLE, ASKED),
    ({"system": "s"}, ABLE, asked(system="s")),
    ({"raw": True}, ABLE, asked(raw=True)),
    ({"suffix": "z"}, ABLE, asked(raw=True, suffix="z")),
    ({"suffix": "z"}, UNABLE, asked(suffix="z")),
    ({"suffix": "", "system": "", "template": "", "context": [], "images": []}, ABLE, ASKED),
    (
        {"images": [PNG], "system": "s"},
        ABLE,
        said(Message("system", "s"), Message("user", (TextPart("p"), ImagePart(media_type="image/png", data=PNG)))),
    ),
    ({"options": {"seed": 1}, "format": "json"}, ABLE, asked(sampling=Sampling(seed=1), response_format="json")),
]


@pytest.mark.parametrize(("fields", "found", "request_"), TEXTS)
def test_texts_become_records(fields: dict[str, Any], found: FoundModel, request_: TextCompletionRequest) -> None:
    body = msgspec.convert({"model": "m", "prompt": "p", **fields}, GenerateBody)
    assert read_generate(body, found) == request_


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        ("/9j/4AAQSkZJRgABAQ==", "image/jpeg"),
        ("R0lGODlhAQABAAAA", "image/gif"),
        ("UklGRiQAAABXRUJQVlA4", "image/webp"),
        ("Qk0eAAAAAAAAABoA", "image/bmp"),
        ("aGVsbG8gd29ybGQh", None),
        ("not base64 at all", None),
        ("", None),
    ],
)
def test_an_image_is_known_by_its_first_bytes(data: str, media_type: str | None) -> None:
    if media_type:
        assert read_image("i", data) == ImagePart(media_type=media_type, data=data)
        return
    with pytest.raises(BadRequest, match=r"^i must be"):
        read_image("i", data)


@pytest.mark.parametrize(
    ("name", "model", "adapter"),
    [
        ("counting", "counting", None),
        ("counting:latest", "counting", None),
        ("counting:lora", "counting", "lora"),
        ("fox", "counting", "lora"),
        ("fox:latest", "counting", "lora"),
        ("tagged", "counting", None),
        ("tagged:latest", "counting", None),
        ("nobody", None, None),
        ("nobody:latest", None, None),
        (":latest", None, None),
    ],
)
def test_the_tag_latest_may_be_left_out(name: str, model: str | None, adapter: str | None) -> None:
    aliases = {"fox": "counting:lora", "tagged:latest": "counting"}
    call = Call("chat", Catalogue((ROUTE,), lambda queue: (), aliases), {}, {}, {}, "r")
    if model is None:
        with pytest.raises(NotFound, match=f"there is no model '{name}'"):
            find_model(call, name)
        return
    found = find_model(call, name)
    assert (found.model, found.adapter, call.route) == (model, adapter, ROUTE)


NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
HEAD = '{"model":"m","created_at":"2026-11-22T12:00:00.000000Z",'
DONE = '"done":true,"done_reason":"%s","total_duration":%d,"load_duration":0,'


def ticking() -> Stopwatch:
    """One more nanosecond each time it is looked at."""
    ticks: Iterator[int] = iter(range(100))
    return Stopwatch(lambda: next(ticks))


def write(shape: type[AnswerShape], records: Sequence[Record]) -> list[str]:
    """The lines without what is the same in all."""
    writer = AnswerLineWriter(shape("m", NOW), ticking())
    data = (b"".join(map(writer.write, records)) + writer.end()).decode()
    assert all(line.startswith(HEAD) for line in data.splitlines())
    return [line.removeprefix(HEAD) for line in data.removesuffix("\n").split("\n")]


COUNTED = '"prompt_eval_count":2,"prompt_eval_duration":1,"eval_count":3,"eval_duration":1}'
EMPTY = '"message":{"role":"assistant","content":""},'
CALLED = '"message":{"role":"assistant","content":"","tool_calls":[%s]},"done":false}'
TOKENS = (
    '"response":"","done":false,"logprobs":[{"token":"\N{REPLACEMENT CHARACTER}","logprob":-1.0,"bytes":[226],'
    '"top_logprobs":[{"token":"a","logprob":-1.0,"bytes":[97]},{"token":"b","logprob":-2.0,"bytes":[98]}]}]}'
)
HALF = Token(1, "\N{REPLACEMENT CHARACTER}", -1.0, ((1, -1.0), (2, -2.0)), ("a", "b"), b"\xe2")
STREAMS: list[tuple[type[AnswerShape], list[Record], list[str]]] = [
    (
        ChatShape,
        [Record(response="a%"), Record(response='é"\n'), Record(finish_reason="length", in_token=2, out_token=3)],
        [
            '"message":{"role":"assistant","content":"a%"},"done":false}',
            '"message":{"role":"assistant","content":"é\\"\\n"},"done":false}',
            EMPTY + DONE % ("length", 2) + COUNTED,
        ],
    ),
    (
        GenerateShape,
        [Record(reasoning="t", response="a"), Record(response="b", finish_reason="stop")],
        [
            '"response":"a","thinking":"t","done":false}',
            '"response":"b","done":false}',
            '"response":"",' + DONE % ("stop", 2) + '"prompt_eval_duration":1,"eval_duration":1}',
        ],
    ),
    (
        ChatShape,
        [
            Record(tool_calls=(ToolCallDelta(0, "x", "f", '{"a":'), ToolCallDelta(1, None, "g"))),
            Record(tool_calls=(ToolCallDelta(0, arguments='\n"}"}'),)),
            Record(finish_reason="tool_calls"),
        ],
        [
            CALLED % '{"function":{"index":0,"name":"f","arguments":{"a":"}"}},"id":"x"}',
            CALLED % '{"function":{"index":1,"name":"g","arguments":{}}}',
            EMPTY + DONE % ("stop", 2) + '"prompt_eval_duration":1,"eval_duration":1}',
        ],
    ),
    (
        GenerateShape,
        [Record(tokens=(HALF, Token(3, "</s>", special=True)))],
        [
            TOKENS,
            '"response":"",' + DONE % ("stop", 2) + '"prompt_eval_duration":1,"eval_duration":1}',
        ],
    ),
    (GenerateShape, [], ['"response":"",' + DONE % ("stop", 1) + '"prompt_eval_duration":0,"eval_duration":1}']),
]


@pytest.mark.parametrize(("shape", "records", "lines"), STREAMS)
def test_records_become_lines(shape: type[AnswerShape], records: list[Record], lines: list[str]) -> None:
    assert write(shape, records) == lines


def test_records_become_one_body() -> None:
    writer = CompletionWriter(partial(encode_answer, shape=ChatShape("m", NOW), watch=ticking()))
    call = ToolCallDelta(0, None, "f", '{"a":1}')
    for record in (
        Record(reasoning="t"),
        Record(response="a"),
        Record(tool_calls=(call,), tokens=(Token(1, "a", -1.0),)),
    ):
        assert writer.write(record) == b""
    assert json.loads(writer.end()) == {
        "model": "m",
        "created_at": "2026-11-22T12:00:00.000000Z",
        "message": {
            "role": "assistant",
            "content": "a",
            "thinking": "t",
            "tool_calls": [{"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
        },
        "done": True,
        "done_reason": "stop",
        "logprobs": [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}],
        "total_duration": 1,
        "load_duration": 0,
        "prompt_eval_duration": 0,
        "eval_duration": 1,
    }
    assert writer.headers == {}


def test_no_text_ends_a_line() -> None:
    text = "".join(map(chr, range(0x250))) + "\u2028\u2029\ufeff🙂"
    (line, rest) = json_line(msgspec.json.encode({"t": text})).decode().split("\n")
    assert (line.splitlines(), rest) == ([line], "")
    assert json.loads(line) == {"t": text}


def test_a_failure_is_a_line_and_no_orderly_end() -> None:
    writer = AnswerLineWriter(ChatShape("m"), Stopwatch())
    assert (writer.content_type, writer.keep_alive, writer.cut_after_failure) == ("application/x-ndjson", b"", True)
    assert writer.fail(Unavailable("gone")) == b'{"error":"gone"}\n'


def test_what_no_client_could_read_is_an_error() -> None:
    writer = AnswerLineWriter(ChatShape("m"), Stopwatch())
    with pytest.raises(ProtocolError, match="more answers"):
        writer.write(Record(index=1, response="x"))
    with pytest.raises(ProtocolError, match="'f' with arguments that are no JSON object"):
        writer.write(Record(tool_calls=(ToolCallDelta(0, None, "f", "[1]"),)))
    writer = AnswerLineWriter(ChatShape("m"), Stopwatch())
    endless = Record(tool_calls=(ToolCallDelta(1, None, "f", "{" + " " * 1_000_000),))
    for _ in range(4):
        assert writer.write(endless) == b""
    with pytest.raises(TooLarge, match="tool calls"):
        writer.write(endless)
