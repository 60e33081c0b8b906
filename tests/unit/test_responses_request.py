"""The Responses API's request -> our record: a row for each field, item and part, and for each thing that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tg_base.protocol import Route
from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.chat import describe_error
from tg_gateway.dialects.responses.encrypted_content import SealedReasoning, seal, unseal
from tg_gateway.dialects.responses.request import ReadRequest, make_count, make_request, read_body
from tg_schema import (
    TEXT_COMPLETION,
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextPart,
    Tool,
    ToolCall,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Reasoning

FOUND = FoundModel(Route("default", TEXT_COMPLETION, "requests", "responses"), "m")
SIGNED = SealedReasoning("X:proof", "so I think")
CODEX = Path(__file__).parent / "codex_request.json"
F = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
G = {"type": "function", "name": "g", "description": "does g", "parameters": None, "strict": True}
TOOL_F, TOOL_G = Tool("f", parameters={"type": "object"}), Tool("g", "does g", strict=True)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def read(**fields: Any) -> ReadRequest:
    data = json.dumps({"model": "m", "input": "hi"} | fields).encode()
    return make_request(data, read_body(data), FOUND)


def message(role: str, *content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(content)}


def text(words: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": kind, "text": words}


def call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, said: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"instructions": "be kind"}, {"system": "be kind"}),
        ({"stream": True}, {"streaming": True}),
        ({"temperature": 0, "top_p": 0.5}, {"sampling": Sampling(temperature=0, top_p=0.5)}),
        (
            {"presence_penalty": 1, "frequency_penalty": -2},
            {"sampling": Sampling(presence_penalty=1, frequency_penalty=-2)},
        ),
        ({"max_output_tokens": 7}, {"sampling": Sampling(max_tokens=7)}),
        ({"top_logprobs": 3}, {"sampling": Sampling(logprobs=3)}),
        ({"include": ["message.output_text.logprobs"]}, {"sampling": Sampling(logprobs=0)}),
        ({"top_logprobs": 0}, {}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": "json"}),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True, "description": "d"}
                }
            },
            {"schema": SCHEMA, "schema_name": "n", "schema_description": "d", "schema_strict": True},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": None}}},
            {"schema": SCHEMA, "schema_name": "n"},
        ),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning": Reasoning("high")}),
        ({"reasoning": {"summary": "auto"}}, {}),
        # What a model that does not reason does anyway.
        ({"reasoning": {"effort": "none"}}, {}),
        ({"reasoning": None, "tools": None, "text": None, "include": None, "tool_choice": None}, {}),
        ({"prompt_cache_key": "k", "user": "u"}, {"cache_key": "k", "user": "u"}),
        ({"safety_identifier": "s"}, {"user": "s"}),
        ({"store": True, "metadata": {"a": "b"}, "truncation": "disabled", "background": False}, {}),
        ({"tools": [F, G]}, {"tools": (TOOL_F, TOOL_G)}),
        ({"tools": [F], "tool_choice": "required"}, {"tools": (TOOL_F,), "tool_choice": "required"}),
        ({"tools": [F], "tool_choice": {"type": "function", "name": "f"}}, {"tools": (TOOL_F,), "tool_choice": "f"}),
        (
            {"tools": [F, G], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [F]}},
            {"tools": (TOOL_F, TOOL_G), "tool_choice": "required", "allowed_tools": ("f",)},
        ),
        ({"tools": [F], "parallel_tool_calls": False}, {"tools": (TOOL_F,), "parallel_tool_calls": False}),
        ({"tools": [F], "parallel_tool_calls": True}, {"tools": (TOOL_F,)}),
        ({"parallel_tool_calls": False, "tool_choice": "auto"}, {}),
    ],
)
def test_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(**fields).record == TextCompletionRequest(**({"prompt": "hi", "model": "m"} | expected))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"role": "user", "content": "hi"}], [Message("user", "hi")]),
        ([message("user", text("hi"))], [Message("user", "hi")]),
        (
            [message("developer", text("a")), message("system", text("b"))],
            [Message("developer", "a"), Message("system", "b")],
        ),
        ([message("user", text("a"), text("b"))], [Message("user", (TextPart("a"), TextPart("b")))]),
        (
            [message("user", text("see"), {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"})],
            [Message("user", (TextPart("see"), ImagePart(url="https://a/b.png")))],
        ),
        (
            [message("user", {"type": "input_image", "image_url": "data:image/jpeg;base64,QUJD"})],
            [Message("user", (ImagePart(media_type="image/jpeg", data="QUJD"),))],
        ),
        ([message("assistant", text("yes", "output_text"))], [Message("assistant", "yes")]),
        ([message("assistant", {"type": "refusal", "refusal": "no"})], [Message("assistant", "no")]),
        (
            [message("assistant", text("a")), message("assistant", text("b"))],
            [Message("assistant", "a"), Message("assistant", "b")],
        ),
        (
            [message("assistant", text("wait")), call("f", "1", "{}"), call("g", "2", ""), output("1", "x")],
            [
                Message("assistant", "wait", tool_calls=(ToolCall("1", "f"), ToolCall("2", "g"))),
                Message("tool", "x", tool_call_id="1"),
            ],
        ),
        (
            [call("f", "1"), output("1", [text("a"), text("b")]), call("f", "2"), output("2", "")],
            [
                Message("assistant", (), tool_calls=(ToolCall("1", "f"),)),
                Message("tool", (TextPart("a"), TextPart("b")), tool_call_id="1"),
                Message("assistant", (), tool_calls=(ToolCall("2", "f"),)),
                Message("tool", "", tool_call_id="2"),
            ],
        ),
        (
            [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal(SIGNED)}, call("f", "1")],
            [Message("assistant", (ReasoningPart("so I think", "X:proof"),), tool_calls=(ToolCall("1", "f"),))],
        ),
        (
            [
                {"type": "reasoning", "summary": [text("in short", "summary_text")]},
                {"type": "reasoning", "summary": [], "content": [text("at length", "reasoning_text")]},
                {"type": "reasoning", "summary": []},
                message("assistant", text("done")),
            ],
            [Message("assistant", (ReasoningPart("in short"), ReasoningPart("at length"), TextPart("done")))],
        ),
        (
            [call("f", "1"), {"type": "reasoning", "encrypted_content": seal(SealedReasoning("X:c", call="1"))}],
            [Message("assistant", (), tool_calls=(ToolCall("1", "f", signature="X:c"),))],
        ),
    ],
)
def test_items(items: list[dict[str, Any]], expected: list[Message]) -> None:
    record = read(input=items).record
    assert (record.messages or (Message("user", record.prompt or ""),)) == tuple(expected)


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"input": None}, "input", "a text, or a list of items"),
        ({"input": []}, "input", "a text, or a list of items"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input", "a text, or a list of items"),
        ({"input": 7}, "input", "wrong field"),
        ({"input": [{"type": "message", "content": "hi"}]}, "input[0].role", "user"),
        ({"input": [{"role": "tool", "content": "hi"}]}, "input[0].role", "developer"),
        ({"input": [{"role": "user"}]}, "input[0].content", "no content"),
        ({"input": [message("user", {"type": "input_text"})]}, "input[0].content[0].text", "no text"),
        (
            {"input": [message("user", {"type": "input_file", "file_id": "f"})]},
            "input[0].content[0].type",
            "input_file",
        ),
        (
            {"input": [message("user", {"type": "input_image", "file_id": "f"})]},
            "input[0].content[0].file_id",
            "no files",
        ),
        (
            {"input": [message("user", {"type": "input_image", "image_url": "file:///etc/passwd"})]},
            "input[0].content[0].image_url",
            "http",
        ),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, "input[0].id", "send the item itself"),
        ({"input": [{"type": "computer_call" + "x" * 999}]}, "input[0].type", "function_call_output"),
        ({"input": [call("f", "")]}, "input[0].call_id", "call_id"),
        ({"input": [call("", "1")]}, "input[0].name", "name"),
        ({"input": [output("1", "x")]}, "input[0].call_id", "send the call as well"),
        ({"input": [call("f", "1"), output("1", None)]}, "input[1].output", "missing"),
        ({"conversation": {"id": "c"}}, "conversation", "send the earlier items in input"),
        ({"prompt": {"id": "p"}}, "prompt", "instructions"),
        ({"background": True, "store": False}, "store", "background: false"),
        ({"max_output_tokens": 0}, "max_output_tokens", ">= 1"),
        ({"temperature": -1}, "temperature", ">= 0"),
        ({"temperature": 3}, "temperature", "<= 2"),
        ({"top_p": 1.5}, "top_p", "<= 1"),
        ({"top_logprobs": 21}, "top_logprobs", "<= 20"),
        ({"reasoning": {"effort": "very"}}, "reasoning.effort", "very"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "xml"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "no name"),
        ({"tools": [{}]}, "tools[0]", "type"),
        ({"tool_choice": "sometimes"}, "tool_choice", "sometimes"),
        ({"tool_choice": "required"}, "tool_choice", "no function"),
        ({"tools": [F], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name", "no function"),
        ({"tools": [F], "tool_choice": {"type": "web_search"}}, "tool_choice.type", "only functions"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "tools": [G]}}, "tool_choice.tools", "at least one"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "at least one"),
        ({"metadata": {"a": 1}}, "metadata[...]", "str"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(BadRequest) as raised:
        read(**fields)
    told = describe_error(raised.value)
    assert told.param == param
    assert says in told.message
    assert len(told.message) < 400


def test_what_is_left_out_is_named() -> None:
    search = {"type": "web_search"}
    patch = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}
    request = read(
        tools=[F, search, patch],
        service_tier="flex",
        include=["file_search_call.results"],
        text={"verbosity": "low"},
        truncation="auto",
        input=[{"type": "reasoning", "encrypted_content": "another server's"}, message("user", text("hi"))],
    )
    assert request.record.tools == (TOOL_F,)
    assert request.record.prompt == "hi"
    assert request.ignored == (
        "service_tier",
        "truncation",
        "include.file_search_call.results",
        "tools.web_search",
        "tools.custom.apply_patch",
        "input[0].encrypted_content",
        "text.verbosity",
    )


def test_the_request_that_codex_sends() -> None:
    data = CODEX.read_bytes()
    request = make_request(data, read_body(data), FOUND)
    record = request.record
    others = ("namespace.multi_agent_v1", "custom.apply_patch", "image_generation", "web_search")
    assert request.ignored == ("client_metadata", *(f"tools.{name}" for name in others))
    assert (len(request.body.tools or ()), len(record.tools)) == (12, 8)
    assert [turn.role for turn in record.messages] == ["developer", "developer", "user", "user"]
    assert (record.streaming, record.tool_choice, record.cache_key) == (True, "auto", "thread-1")
    assert record.features <= {"history", "tools", "developer"}


def test_counting_asks_for_no_answer() -> None:
    request = read(instructions="be kind", tools=[F], stream=True, max_output_tokens=9)
    assert make_count(request) == TextCompletionRequest(
        system="be kind", prompt="hi", model="m", tools=(TOOL_F,), operation="count-tokens"
    )


@pytest.mark.parametrize(
    "sealed",
    [SIGNED, SealedReasoning("X:redacted"), SealedReasoning("g:\u2028\ud7ff", "ä\n", "c"), SealedReasoning("")],
)
def test_a_seal_opens_again(sealed: SealedReasoning) -> None:
    content = seal(sealed)
    assert content.isascii()
    assert unseal(content, SealedReasoning) == sealed


@pytest.mark.parametrize(
    "content", ["", "gAAAAAB", "tg1.", "tg1.!!", "tg1.bm8=", "tg1.ü", seal(SIGNED)[:-3], "tg1.e30="]
)
def test_another_servers_seal_stays_shut(content: str) -> None:
    assert unseal(content, SealedReasoning) is None


def test_an_odd_surrogate_is_no_defect() -> None:
    with pytest.raises(BadRequest):
        read_body(b'{"input":"\\ud800"}')
