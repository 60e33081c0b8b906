"""Gemini's contents <-> our records, value by value."""

import json
from typing import Any

import msgspec
import pytest

from tests.fakes.gemini_transcript import candidate, error_body, response
from tg_base.llm import LlmChunk
from tg_base.llm.gemini import GeminiOptions
from tg_base.llm.gemini.request import to_wire
from tg_base.llm.gemini.stream import StreamDecoder, error_detail
from tg_base.llm.http import UNREADABLE, ErrorDetail
from tg_schema import (
    ImagePart,
    Message,
    TextCompletionRequest,
    TextPart,
    TgError,
    Token,
    Tool,
    ToolCall,
)
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, ContentFilter, IncompleteStream, ProtocolError, RateLimited, Unavailable
from tg_schema.text_completion import Reasoning

OPTIONS = GeminiOptions()
QUESTION = Message("user", "x")
WEATHER = Tool("weather", "in a city", {"type": "object"})


def body(request: TextCompletionRequest, options: GeminiOptions = OPTIONS) -> dict[str, Any]:
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(to_wire(request, options)))
    return sent


def chunk(data: bytes, answer: StreamDecoder | None = None) -> LlmChunk | None:
    return (answer or StreamDecoder()).chunk(data.removeprefix(b"data: ").strip())


def test_a_plain_request_has_no_more_than_it_needs() -> None:
    assert body(TextCompletionRequest(prompt="hi")) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {},
    }


def test_defaults_leave_no_trace_in_the_next_request() -> None:
    options = GeminiOptions()
    body(TextCompletionRequest(system="s", prompt="p", response_format="json"), options)
    assert body(TextCompletionRequest(prompt="p"), options) == body(TextCompletionRequest(prompt="p"))


def test_a_conversation_with_calls_and_images() -> None:
    turns = (
        Message("user", (TextPart("this?"), ImagePart(data="QQ=="), ImagePart(media_type="image/gif", url="gs://a/b"))),
        Message("assistant", "so", tool_calls=(ToolCall("call-1", "f", '{"x":1}'), ToolCall("theirs", "g", ""))),
        Message("tool", "rain", tool_call_id="call-1"),
        Message("tool", "no", tool_call_id="theirs", error=True),
    )
    assert body(TextCompletionRequest(messages=turns, prompt="go on"))["contents"] == [
        {
            "role": "user",
            "parts": [
                {"text": "this?"},
                {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
                {"fileData": {"mimeType": "image/gif", "fileUri": "gs://a/b"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "so"},
                {
                    "functionCall": {"name": "f", "args": {"x": 1}},
                    "thoughtSignature": "skip_thought_signature_validator",
                },
                {"functionCall": {"name": "g", "args": {}, "id": "theirs"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "rain"}}},
                {"functionResponse": {"name": "g", "response": {"error": "no"}, "id": "theirs"}},
                {"text": "go on"},
            ],
        },
    ]


def test_a_call_goes_back_with_the_signature_that_it_came_with() -> None:
    parts = [{"functionCall": {"name": "f", "args": {}, "id": "a"}, "thoughtSignature": "of-a"}]
    read = chunk(candidate("m", *parts, {"functionCall": {"name": "g", "args": {}}}))
    assert read is not None
    assert [call.signature for call in read.tool_calls] == ["gemini:of-a", None]
    calls = tuple(ToolCall(call.id or "", call.name or "", call.arguments, call.signature) for call in read.tool_calls)
    other = ToolCall("c", "h", "{}", "anthropic:SIG")
    turns = (Message("assistant", tool_calls=calls), QUESTION, Message("assistant", tool_calls=(other,)))
    sent = body(TextCompletionRequest(messages=(QUESTION, *turns)))["contents"]
    assert [[part.get("thoughtSignature") for part in content["parts"]] for content in sent[1::2]] == [
        ["of-a", None],
        ["skip_thought_signature_validator"],
    ]


def test_a_signature_of_text_stays_where_it_stood() -> None:
    last = chunk(candidate("m", {"text": "", "thoughtSignature": "SIG"}, finish="STOP"))
    assert last is not None
    assert (last.text, last.signature) == ("", "gemini:SIG")
    said = (ReasoningPart("hm"), TextPart("so"), ReasoningPart("", last.signature), ReasoningPart("x", "anthropic:y"))
    sent = body(TextCompletionRequest(messages=(QUESTION, Message("assistant", said)), prompt="go on"))
    assert sent["contents"][1]["parts"] == [{"text": "so"}, {"text": "", "thoughtSignature": "SIG"}]


def test_a_turn_of_which_nothing_can_be_told_is_left_out() -> None:
    silent = Message("assistant", (ReasoningPart("hm", "anthropic:y"),))
    sent = body(TextCompletionRequest(messages=(QUESTION, silent), prompt="go on"))
    assert [content["role"] for content in sent["contents"]] == ["user"]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, {"mode": "VALIDATED", "allowedFunctionNames": ["weather"]}),
        ("auto", {"mode": "VALIDATED", "allowedFunctionNames": ["weather"]}),
        ("required", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
        ("none", {"mode": "NONE"}),
    ],
)
def test_tools_that_may_be_called(choice: str | None, sent: dict[str, Any]) -> None:
    tools = (WEATHER, Tool("clock"))
    request = TextCompletionRequest(prompt="p", tools=tools, tool_choice=choice, allowed_tools=("weather",))
    assert body(request)["toolConfig"] == {"functionCallingConfig": sent}
    strict = TextCompletionRequest(prompt="p", tools=(Tool("clock", strict=True),))
    assert body(strict)["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}


@pytest.mark.parametrize(
    ("reasoning", "by_budget", "sent"),
    [
        (Reasoning("none"), False, {"thinkingBudget": 0}),
        (Reasoning("high", 0), False, {"thinkingBudget": 0}),
        (Reasoning("minimal"), False, {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        (Reasoning("max"), False, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        (Reasoning("low"), True, {"includeThoughts": True, "thinkingBudget": 2048}),
        (Reasoning("low", 500), False, {"includeThoughts": True, "thinkingBudget": 500}),
        (Reasoning(), False, {"includeThoughts": True}),
    ],
)
def test_reasoning_of_a_request(reasoning: Reasoning, by_budget: bool, sent: dict[str, Any]) -> None:
    options = GeminiOptions(thinking_budget=7, effort_by="budget" if by_budget else "level")
    read = body(TextCompletionRequest(prompt="p", reasoning=reasoning), options)
    assert read["generationConfig"]["thinkingConfig"] == sent


def test_a_result_that_answers_nothing_is_refused() -> None:
    turns = (Message("user", "x"), Message("tool", "y", tool_call_id="lost"))
    with pytest.raises(BadRequest, match="tool_call_id"):
        body(TextCompletionRequest(messages=turns))


def test_thoughts_and_text_come_apart() -> None:
    read = chunk(candidate("m", {"text": "hm", "thought": True}, {"text": "a"}, {"text": "b"}))
    assert read == LlmChunk("ab", model="m-001", reasoning="hm")


def test_calls_without_ids_get_some_that_differ() -> None:
    answer = StreamDecoder()
    part = {"functionCall": {"name": "f", "args": {"x": "ü"}}}
    first, second = (chunk(candidate("m", part, **fields), answer) for fields in ({}, {"finish": "STOP"}))
    assert first is not None
    assert second is not None
    calls = (*first.tool_calls, *second.tool_calls)
    assert [(call.index, call.name, call.arguments) for call in calls] == [(0, "f", '{"x":"ü"}'), (1, "f", '{"x":"ü"}')]
    assert len({call.id for call in calls}) == 2
    assert second.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("FINISH_REASON_UNSPECIFIED", None),
    ],
)
def test_finish_reasons(theirs: str, ours: str | None) -> None:
    read = chunk(candidate("m", finish=theirs))
    assert read is not None
    assert read.finish_reason == ours


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("MALFORMED_FUNCTION_CALL", ProtocolError),
        ("UNEXPECTED_TOOL_CALL", ProtocolError),
        ("OTHER", IncompleteStream),
        ("OF_NEXT_YEAR", IncompleteStream),
    ],
)
def test_an_end_that_is_none_is_an_error(reason: str, error: type[TgError]) -> None:
    with pytest.raises(error):
        chunk(candidate("m", {"text": "half"}, finish=reason))


def test_a_blocked_prompt() -> None:
    with pytest.raises(ContentFilter):
        chunk(response(promptFeedback={"blockReason": "SAFETY"}, usageMetadata={"promptTokenCount": 5}))


def test_usage_is_told_as_deltas_with_the_thinking_in_it() -> None:
    answer = StreamDecoder()
    usages: list[dict[str, Any]] = [
        {"trafficType": "ON_DEMAND"},
        {"promptTokenCount": 10, "cachedContentTokenCount": 4, "thoughtsTokenCount": 3},
        {"promptTokenCount": 10, "cachedContentTokenCount": 4, "thoughtsTokenCount": 3, "candidatesTokenCount": 2},
        {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 5,
            "cachedContentTokenCount": 4,
            "thoughtsTokenCount": 3,
            "candidatesTokenCount": 6,
        },
    ]
    read = [chunk(response(usageMetadata=usage), answer) for usage in usages]
    assert [each and (each.in_token, each.out_token, each.cached_token, each.reasoning_token) for each in read] == [
        None,
        (10, 3, 4, 3),
        (0, 2, 0, 0),
        (5, 4, 0, 0),
    ]


def test_logprobs_become_tokens() -> None:
    result = {
        "chosenCandidates": [{"token": "Hi", "tokenId": 7, "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "Hi", "tokenId": 7, "logProbability": -0.5}, {"token": "Yo"}]}],
    }
    said = {"content": {"parts": [{"text": "Hi"}]}, "logprobsResult": result}
    read = chunk(response(candidates=[said]))
    assert read is not None
    assert read.tokens == (Token(7, "Hi", -0.5, ((7, -0.5),), top_texts=("Hi",)),)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"candidates":5}', b"\xff", b"[" * 100_000])
def test_garbage_is_unreadable(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        StreamDecoder().chunk(data)


def test_errors_in_a_stream_tell_nothing_of_their_text() -> None:
    for code, status, error in ((503, "UNAVAILABLE", Unavailable), (429, "RESOURCE_EXHAUSTED", RateLimited)):
        said = error_body(code, status)
        said["error"]["message"] = "a secret"
        with pytest.raises(error) as caught:
            StreamDecoder().chunk(json.dumps(said).encode())
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (error_body(404, "NOT_FOUND"), ErrorDetail("NOT_FOUND")),
        ([error_body(404, "NOT_FOUND")], ErrorDetail("NOT_FOUND")),
        (error_body(400, "INVALID_ARGUMENT", {"reason": "API_KEY_INVALID"}), ErrorDetail("API_KEY_INVALID")),
        (error_body(429, "X", {"@type": "RetryInfo", "retryDelay": "1.5s"}), ErrorDetail("X", 1.5)),
        (error_body(429, "X", {"retryDelay": "soon"}), ErrorDetail("X")),
        ({}, ErrorDetail()),
    ],
)
def test_refusals(said: object, expected: ErrorDetail) -> None:
    assert error_detail(json.dumps(said).encode()) == expected


@pytest.mark.parametrize("data", [b"<html>", b'"<html>"', b"[" * 100_000, b"\xff"])
def test_a_refusal_by_somebody_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        error_detail(data)
