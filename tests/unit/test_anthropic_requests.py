"""Our records -> Anthropic's Messages, value by value."""

from typing import Any

import msgspec
import pytest

from tg_base.llm.anthropic import ClaudeOptions
from tg_base.llm.anthropic.request import add_foreign_fields, answers_by_tool, betas, to_wire
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextPart,
    Tool,
    ToolCall,
)
from tg_schema.conversation import ForeignPart, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Foreign, Reasoning

OPTIONS = ClaudeOptions(max_tokens=100)
WEATHER = Tool("weather", "in a city", {"type": "object"})
CALLED = Message("assistant", tool_calls=(ToolCall("c1", "weather", '{"city":"Ulm"}'), ToolCall("c2", "weather", "")))


def body(request: TextCompletionRequest, options: ClaudeOptions = OPTIONS) -> dict[str, Any]:
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(to_wire(request, "claude", options)))
    return sent


def test_a_plain_request_has_no_more_than_it_needs() -> None:
    assert body(TextCompletionRequest(prompt="hi")) == {
        "model": "claude",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
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


SCHEMA = {"type": "object", "additionalProperties": False}


def test_a_schema_goes_by_structured_outputs_or_by_a_tool() -> None:
    request = TextCompletionRequest(prompt="p", schema=SCHEMA)
    by_format, by_tool = body(request), body(request, ClaudeOptions(max_tokens=100, thinking=2000, schema_by="tool"))
    assert by_format["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert "tools" not in by_format
    assert by_tool["tools"][0]["input_schema"] == SCHEMA
    assert by_tool["tool_choice"] == {"type": "tool", "name": "answer"}
    assert not {"output_config", "thinking"} & set(by_tool)


def test_objects_of_a_schema_are_closed_where_it_leaves_them_open() -> None:
    open_type = {"type": "object", "properties": {"type": {"enum": ["object"]}, "more": {"type": "object"}}}
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"anyOf": [open_type, free, {"$ref": "#/$defs/a"}], "$defs": {"a": {"items": {"type": "object"}}}}
    request = TextCompletionRequest(prompt="p", schema=schema, schema_description="d")
    closed = {"type": "object", "additionalProperties": False}
    assert body(request)["output_config"]["format"]["schema"] == {
        "anyOf": [
            {**closed, "properties": {"type": {"enum": ["object"]}, "more": closed}},
            free,
            {"$ref": "#/$defs/a"},
        ],
        "$defs": {"a": {"items": closed}},
    }
    (tool,) = body(request, ClaudeOptions(max_tokens=100, schema_by="tool"))["tools"]
    assert (tool["input_schema"], tool["description"]) == (schema, "d")


def test_json_goes_by_a_tool_and_not_beside_tools() -> None:
    request = TextCompletionRequest(prompt="p", response_format="json")
    assert answers_by_tool(request, OPTIONS)
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
    assert (
        body(TextCompletionRequest(prompt="p"), ClaudeOptions(max_tokens=5000, thinking=thinking)).get("thinking")
        == sent
    )


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
    assert ("thinking" in body(request, ClaudeOptions(max_tokens=5000, thinking=2000))) is thinks
    assert body(request, ClaudeOptions(max_tokens=5000, thinking="adaptive"))["thinking"]["type"] == "adaptive"


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
    options = ClaudeOptions(max_tokens=100, thinking=1500, effort_by="budget" if by_budget else "effort")
    read = body(TextCompletionRequest(prompt="p", reasoning=reasoning), options)
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
    assert "thinking" not in body(request, ClaudeOptions(max_tokens=5000, thinking=2000))


def test_a_forced_tool_is_called_with_the_effort_that_is_asked_for() -> None:
    request = TextCompletionRequest(prompt="p", tools=(WEATHER,), tool_choice="weather", reasoning=Reasoning("low"))
    sent = body(request, ClaudeOptions(max_tokens=5000))
    assert ("thinking" in sent, sent["output_config"]) == (False, {"effort": "low"})
