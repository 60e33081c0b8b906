"""Anthropic's Messages <-> our records, value by value."""

import json
from typing import Any

import msgspec
import pytest

from tests.fakes.anthropic_transcript import delta, event
from tg_base.llm import LlmChunk, join_chunks
from tg_base.llm.anthropic import error_detail, model_list
from tg_base.llm.anthropic.request import add_foreign_fields, answers_by_tool, betas, to_wire
from tg_base.llm.anthropic.stream import StreamDecoder
from tg_base.llm.anthropic.thinking import Defaults
from tg_base.llm.http import UNREADABLE, ErrorDetail
from tg_schema import (
    ImagePart,
    Message,
    ModelInfo,
    Sampling,
    TextCompletionRequest,
    TextPart,
    TgError,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from tg_schema.conversation import ForeignPart, ReasoningPart
from tg_schema.errors import BadRequest, RateLimited, TooLarge, Unavailable
from tg_schema.text_completion import Foreign, Reasoning

DEFAULTS = Defaults(max_tokens=100)
WEATHER = Tool("weather", "in a city", {"type": "object"})
CALLED = Message("assistant", tool_calls=(ToolCall("c1", "weather", '{"city":"Ulm"}'), ToolCall("c2", "weather", "")))


def body(request: TextCompletionRequest, defaults: Defaults = DEFAULTS) -> dict[str, Any]:
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(to_wire(request, "claude", defaults)))
    return sent


def chunks(*events: bytes, by_tool: bool = False) -> list[LlmChunk]:
    answer = StreamDecoder(by_tool=by_tool)
    read = [answer.chunk(each.partition(b"data: ")[2].strip()) for each in events]
    return [chunk for chunk in read if chunk is not None]


def test_a_plain_request_has_no_more_than_it_needs() -> None:
    assert body(TextCompletionRequest(prompt="hi")) == {
        "model": "claude",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


def test_all_sampling_fields() -> None:
    sampling = Sampling(temperature=0.0, top_p=0.5, top_k=7, max_tokens=9, stop=("END",))
    sent = body(TextCompletionRequest(system="s", prompt="p", sampling=sampling), Defaults(5, temperature=1.0))
    del sent["messages"], sent["model"], sent["stream"]
    assert sent == {
        "system": "s",
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 7,
        "stop_sequences": ["END"],
    }


def test_results_of_calls_and_what_the_user_says_then_are_one_turn() -> None:
    turns = (
        Message(
            "user", (TextPart("this?"), ImagePart(media_type="image/webp", data="QQ=="), ImagePart(url="https://a"))
        ),
        CALLED,
        Message("tool", "rain", tool_call_id="c1"),
        Message("tool", "no", tool_call_id="c2", error=True),
    )
    sent = body(TextCompletionRequest(messages=turns, prompt="go on", tools=(WEATHER,)))
    assert sent["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "QQ=="}},
                {"type": "image", "source": {"type": "url", "url": "https://a"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ]


@pytest.mark.parametrize("arguments", ["[]", "{", "nonsense", "\ud800", "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    turns = (Message("user", "x"), Message("assistant", tool_calls=(ToolCall("c", "weather", arguments),)))
    with pytest.raises(BadRequest, match="arguments of a tool call"):
        body(TextCompletionRequest(messages=turns))


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, None),
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("weather", {"type": "tool", "name": "weather"}),
    ],
)
def test_tool_choice(choice: str | None, sent: dict[str, str] | None) -> None:
    request = TextCompletionRequest(prompt="p", tools=(WEATHER,), tool_choice=choice)
    assert body(request).get("tool_choice") == sent
    assert body(request)["tools"] == [
        {"name": "weather", "description": "in a city", "input_schema": {"type": "object"}}
    ]


SCHEMA = {"type": "object", "additionalProperties": False}


def test_a_schema_goes_by_structured_outputs_or_by_a_tool() -> None:
    request = TextCompletionRequest(prompt="p", schema=SCHEMA)
    by_format, by_tool = body(request), body(request, Defaults(100, thinking=2000, schema_by_tool=True))
    assert by_format["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert "tools" not in by_format
    assert by_tool["tools"][0]["input_schema"] == SCHEMA
    assert by_tool["tool_choice"] == {"type": "tool", "name": "answer"}
    assert not {"output_config", "thinking"} & set(by_tool)


def test_json_goes_by_a_tool_and_not_beside_tools() -> None:
    request = TextCompletionRequest(prompt="p", response_format="json")
    assert answers_by_tool(request, DEFAULTS)
    assert body(request)["tools"][0]["input_schema"] == {"type": "object"}
    with pytest.raises(BadRequest, match="at once"):
        body(TextCompletionRequest(prompt="p", response_format="json", tools=(WEATHER,)))


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        (None, None),
        (2048, {"type": "enabled", "budget_tokens": 2048}),
        ("adaptive", {"type": "adaptive", "display": "summarized"}),
    ],
)
def test_thinking_is_asked_for(thinking: Any, sent: object) -> None:
    assert body(TextCompletionRequest(prompt="p"), Defaults(5000, thinking=thinking)).get("thinking") == sent


QUESTION = Message("user", "x")
RESULT = Message("tool", "y", tool_call_id="c1")
THOUGHT = ReasoningPart("hm", "anthropic:SIG")
THOUGHTFUL = msgspec.structs.replace(CALLED, content=(THOUGHT, TextPart("I look")))


@pytest.mark.parametrize(
    ("turns", "thinks"),
    [
        ((QUESTION, CALLED, RESULT), False),
        ((QUESTION, THOUGHTFUL, RESULT), True),
        ((QUESTION, THOUGHTFUL, RESULT, CALLED, RESULT), True),
        ((QUESTION, CALLED, RESULT, THOUGHTFUL, RESULT), False),
        ((QUESTION, CALLED, RESULT, Message("assistant", "z"), QUESTION), True),
    ],
)
def test_a_budget_is_left_out_in_rounds_of_calls_that_began_without_thinking(
    turns: tuple[Message, ...], thinks: bool
) -> None:
    request = TextCompletionRequest(messages=turns)
    assert ("thinking" in body(request, Defaults(5000, thinking=2000))) is thinks
    assert body(request, Defaults(5000, thinking="adaptive"))["thinking"]["type"] == "adaptive"


def test_signed_thinking_goes_back_unchanged_and_that_of_others_does_not() -> None:
    turn = Message(
        "assistant",
        (
            ReasoningPart("unsigned"),
            ReasoningPart("other", "gemini:SIG"),
            THOUGHT,
            ReasoningPart("", "anthropic-redacted:DATA"),
            TextPart("I look"),
            ForeignPart("anthropic", {"type": "server_tool_use", "id": "s"}),
            ForeignPart("openai", {"type": "refusal"}),
        ),
        tool_calls=(ToolCall("c1", "weather", "{}"),),
    )
    (_, sent) = body(TextCompletionRequest(messages=(QUESTION, turn)))["messages"]
    assert sent["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "SIG"},
        {"type": "redacted_thinking", "data": "DATA"},
        {"type": "text", "text": "I look"},
        {"type": "server_tool_use", "id": "s"},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
    ]


LONG = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}


def test_cache_marks_stand_on_the_blocks_that_have_them() -> None:
    turns = (
        Message("system", (TextPart("a", cache="1h"), TextPart("b"))),
        Message("user", (TextPart("x", cache="5m"), ImagePart(data="QQ==", cache="1h"))),
        Message("assistant", tool_calls=(ToolCall("c1", "weather", "{}", cache="5m"),)),
        Message("tool", (TextPart("y", cache="1h"),), tool_call_id="c1", cache="5m"),
    )
    tool = msgspec.structs.replace(WEATHER, cache="1h")
    sent = body(TextCompletionRequest("s", messages=turns, tools=(tool,)))
    assert sent["system"] == [
        {"type": "text", "text": "s"},
        {"type": "text", "text": "a", "cache_control": LONG},
        {"type": "text", "text": "b"},
    ]
    marks = [[block.get("cache_control") for block in turn["content"]] for turn in sent["messages"]]
    assert marks == [[SHORT, LONG], [SHORT], [SHORT]]
    assert sent["messages"][2]["content"][0]["content"][0]["cache_control"] == LONG
    assert sent["tools"][0]["cache_control"] == LONG


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", {"type": "any", "disable_parallel_tool_use": True}),
        ("weather", {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}),
        ("none", {"type": "none"}),
    ],
)
def test_at_most_one_call(choice: str | None, sent: dict[str, Any]) -> None:
    request = TextCompletionRequest(prompt="p", tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=False)
    assert body(request)["tool_choice"] == sent
    assert "tool_choice" not in body(TextCompletionRequest(prompt="p", tools=(WEATHER,), parallel_tool_calls=True))


def test_anthropics_own_fields_tools_and_hints() -> None:
    foreign = Foreign(
        "anthropic", {"speed": "fast", "model": "other", "max_tokens": 1}, ({"type": "web_search"},), ("b",)
    )
    tool = msgspec.structs.replace(WEATHER, strict=True)
    request = TextCompletionRequest(prompt="p", tools=(tool,), foreign=foreign, user="u")
    assert add_foreign_fields({"model": "m"}, request) == {"speed": "fast", "model": "m"}
    assert betas(request) == ("b",)
    sent = body(request)
    assert (sent["tools"][0]["strict"], sent["tools"][1]) == (True, {"type": "web_search"})
    assert sent["metadata"] == {"user_id": "u"}
    others = msgspec.structs.replace(request, foreign=Foreign("openai", {"verbosity": "low"}, ({"type": "x"},), ("b",)))
    assert (add_foreign_fields({}, others), betas(others), len(body(others)["tools"])) == ({}, (), 1)


@pytest.mark.parametrize(
    ("own", "given", "sent"),
    [
        (
            {"thinking": {"type": "adaptive", "display": "summarized"}},
            {"thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"}},
            {"thinking": {"type": "adaptive", "display": "omitted"}},
        ),
        ({}, {"thinking": {"type": "adaptive", "display": "omitted"}}, {}),
        ({}, {"output_config": {"effort": "low", "task_budget": 1}}, {"output_config": {"task_budget": 1}}),
        (
            {"output_config": {"effort": "high"}},
            {"output_config": {"effort": "low", "task_budget": 1}},
            {"output_config": {"effort": "high", "task_budget": 1}},
        ),
        ({}, {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "auto"}}),
        ({}, {"thinking": "x", "output_config": None}, {}),
    ],
)
def test_what_records_do_not_say_of_a_field_is_added(
    own: dict[str, Any], given: dict[str, Any], sent: dict[str, Any]
) -> None:
    request = TextCompletionRequest(prompt="p", foreign=Foreign("anthropic", given))
    assert add_foreign_fields(own, request) == sent


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("reasoning", "by_budget", "sent"),
    [
        (Reasoning("none"), False, (100, {"type": "disabled"}, None)),
        (Reasoning(budget=0), False, (100, {"type": "disabled"}, None)),
        (Reasoning(), False, (100, ADAPTIVE, None)),
        (Reasoning("minimal"), False, (100, ADAPTIVE, {"effort": "low"})),
        (Reasoning("max"), False, (100, ADAPTIVE, {"effort": "max"})),
        (Reasoning("low"), True, (2148, {"type": "enabled", "budget_tokens": 2048}, None)),
        (Reasoning(budget=3000), False, (3100, {"type": "enabled", "budget_tokens": 3000}, None)),
        (Reasoning("high", 3000), False, (3100, {"type": "enabled", "budget_tokens": 3000}, {"effort": "high"})),
    ],
)
def test_reasoning_of_a_request(reasoning: Reasoning, by_budget: bool, sent: tuple[Any, ...]) -> None:
    defaults = Defaults(100, thinking=1500, effort_by_budget=by_budget)
    read = body(TextCompletionRequest(prompt="p", reasoning=reasoning), defaults)
    assert (read["max_tokens"], read["thinking"], read.get("output_config")) == sent


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (TextCompletionRequest(prompt="p", reasoning=Reasoning(budget=500)), "at least 1024"),
        (
            TextCompletionRequest(prompt="p", reasoning=Reasoning(budget=2000), sampling=Sampling(max_tokens=2000)),
            "must be higher",
        ),
        (
            TextCompletionRequest(
                prompt="p", reasoning=Reasoning(budget=2000), tools=(WEATHER,), tool_choice="required"
            ),
            "must call",
        ),
        (TextCompletionRequest(prompt="p", reasoning=Reasoning(budget=2000), response_format="json"), "JSON by a tool"),
    ],
)
def test_reasoning_that_this_api_cannot_do(request_: TextCompletionRequest, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        body(request_)


def test_a_forced_tool_is_called_without_the_configured_thinking() -> None:
    request = TextCompletionRequest(prompt="p", tools=(WEATHER,), tool_choice="weather")
    assert "thinking" not in body(request, Defaults(5000, thinking=2000))


def test_a_forced_tool_is_called_with_the_effort_that_is_asked_for() -> None:
    request = TextCompletionRequest(prompt="p", tools=(WEATHER,), tool_choice="weather", reasoning=Reasoning("low"))
    sent = body(request, Defaults(5000))
    assert ("thinking" in sent, sent["output_config"]) == (False, {"effort": "low"})


def test_a_block_of_thinking_ends_with_its_signature() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking", thinking="hm"),
        delta(0, "signature", signature="SI"),
        delta(0, "signature", signature="G"),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "DATA"}),
        event("content_block_stop", index=1),
    )
    assert [(chunk.reasoning, chunk.signature) for chunk in read] == [
        ("hm", None),
        (None, "anthropic:SIG"),
        (None, "anthropic-redacted:DATA"),
    ]


def test_calls_and_text_share_a_message() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        delta(0, "text", text="so "),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "tool_use", "id": "a", "name": "f", "input": {}}),
        delta(1, "input_json", partial_json=""),
        delta(1, "input_json", partial_json='{"x":'),
        event("content_block_start", index=2, content_block={"type": "tool_use", "id": "b", "name": "g", "input": {}}),
        delta(1, "input_json", partial_json="1}"),
        event("content_block_stop", index=1),
        event("content_block_stop", index=2),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
        event("message_stop"),
    )
    (whole,) = join_chunks(read)
    assert (whole.text, whole.finish_reason, whole.out_token, whole.in_token) == ("so ", "tool_calls", 5, None)
    assert whole.tool_calls == (ToolCallDelta(0, "a", "f", '{"x":1}'), ToolCallDelta(1, "b", "g", "{}"))


def test_a_tools_input_as_the_answer() -> None:
    read = chunks(
        event("content_block_start", index=0, content_block={"type": "tool_use", "id": "a", "name": "answer"}),
        delta(0, "input_json", partial_json='{"x"'),
        delta(0, "input_json", partial_json=":1}"),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 5}),
        event("message_stop"),
        by_tool=True,
    )
    (whole,) = join_chunks(read)
    assert (whole.text, whole.finish_reason, whole.tool_calls) == ('{"x":1}', "stop", ())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("of_next_year", "stop"),
    ],
)
def test_finish_reasons_count_once_the_message_stops(theirs: str, ours: str) -> None:
    told = event("message_delta", delta={"stop_reason": theirs})
    assert [chunk.finish_reason for chunk in chunks(told)] == []
    assert [chunk.finish_reason for chunk in chunks(told, event("message_stop"))] == [ours]


def test_the_stop_string_that_ended_the_answer() -> None:
    read = chunks(
        event("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}), event("message_stop")
    )
    assert [(chunk.finish_reason, chunk.stopped_by) for chunk in read] == [("stop", "END")]


def test_a_stop_without_a_reason_is_no_end() -> None:
    assert [chunk.finish_reason for chunk in chunks(event("message_stop"))] == [None]


def test_usage_is_told_as_deltas_with_the_cache_in_it() -> None:
    read = chunks(
        event(
            "message_start",
            message={
                "model": "claude-1",
                "usage": {
                    "input_tokens": 3,
                    "cache_creation_input_tokens": 20,
                    "cache_read_input_tokens": 100,
                    "output_tokens": 1,
                },
            },
        ),
        event("message_delta", delta={}, usage={"output_tokens": 4}),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"output_tokens": 9, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 6}},
        ),
    )
    assert [(chunk.in_token, chunk.out_token, chunk.cached_token, chunk.reasoning_token) for chunk in read] == [
        (123, 1, 100, None),
        (None, 3, None, None),
        (None, 5, None, 6),
    ]
    assert [chunk.cache_write_token for chunk in read] == [20, None, None]


def test_what_we_do_not_know_is_passed_over() -> None:
    assert (
        chunks(
            event("ping"),
            event("of_next_year", index=1, delta=None),
            event("content_block_start", index=0, content_block={"type": "server_tool_use", "id": "x", "name": "y"}),
            delta(0, "input_json", partial_json="{}"),
            delta(0, "citations", citation={"type": "x"}),
            event("content_block_stop", index=0),
        )
        == []
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"index":1}', b'{"type":"ping","index":"x"}', b"\xff", b"[" * 100_000]
)
def test_garbage_is_unreadable(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        StreamDecoder().chunk(data)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Unavailable),
        ("api_error", Unavailable),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", BadRequest),
        ("request_too_large", TooLarge),
        ("of_next_year", Unavailable),
    ],
)
def test_errors_in_a_stream(kind: str, error: type[TgError]) -> None:
    data = json.dumps({"type": "error", "error": {"type": kind, "message": "sk-secret"}}).encode()
    with pytest.raises(error) as caught:
        StreamDecoder().chunk(data)
    assert type(caught.value) is error
    assert "secret" not in str(caught.value)
    assert error_detail(data) == ErrorDetail(kind)


@pytest.mark.parametrize("data", [b'{"type":"error"}', b'{"type":"error","error":{}}'])
def test_a_refusal_without_a_word(data: bytes) -> None:
    assert error_detail(data) == ErrorDetail()


@pytest.mark.parametrize("data", [b"<html>", b"{}", b"[" * 100_000, b"\xff"])
def test_a_refusal_by_somebody_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        error_detail(data)


def test_the_list_of_models() -> None:
    data = b'{"data":[{"id":"a","created_at":"1970-01-01T00:01:00Z"},{"id":"b","created_at":"soon"}],"has_more":false}'
    assert model_list(data) == (ModelInfo("a", "anthropic", 60), ModelInfo("b", "anthropic"))
    with pytest.raises(UNREADABLE):
        model_list(b"<html>")
