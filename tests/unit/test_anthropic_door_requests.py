"""JSON of Anthropic's clients -> request records: each field, by the features of the model that is asked."""

from typing import Any

import msgspec
import pytest

from tests.fakes.messages_llm import PLAIN
from tests.unit.message_requests import DOCUMENT, HI, HOUR, MARK, NESTED, OURS, PEER, SCHEMA, WEATHER, read, request
from tg_gateway.dialects.anthropic.request import MessageRequest
from tg_schema import (
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextPart,
    ToolCall,
)
from tg_schema.conversation import ForeignPart, ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Foreign, Reasoning


@pytest.mark.parametrize(
    ("body", "record"),
    [
        ({}, request()),
        ({"stream": True, "system": "be brief"}, request(system="be brief", streaming=True)),
        (
            {"max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["a", "b"]},
            request(sampling=Sampling(temperature=0.5, top_p=0.9, top_k=3, max_tokens=5, stop=("a", "b"))),
        ),
        ({"metadata": {"user_id": "u"}}, request(user="u")),
        ({"metadata": None, "tools": None, "system": None, "stop_sequences": None, "stream": None}, request()),
        ({"tools": [WEATHER]}, request(tools=(OURS,))),
        (
            {"tools": [WEATHER | {"type": "custom", "strict": True} | HOUR], "tool_choice": {"type": "any"}},
            request(
                tools=(msgspec.structs.replace(OURS, strict=True, cache="1h"),),
                tool_choice="required",
            ),
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "auto"}}, request(tools=(OURS,), tool_choice="auto")),
        ({"tools": [WEATHER], "tool_choice": {"type": "none"}}, request(tools=(OURS,), tool_choice="none")),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
            },
            request(tools=(OURS,), tool_choice="weather", parallel_tool_calls=False),
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            request(schema=SCHEMA),
        ),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, request(schema=SCHEMA)),
        ({"output_config": {"effort": "xhigh"}}, request(reasoning=Reasoning("xhigh"))),
    ],
)
def test_fields(body: dict[str, Any], record: TextCompletionRequest) -> None:
    assert read(body) == MessageRequest(record, ())


TURNS: list[tuple[dict[str, Any], tuple[Message, ...]]] = [
    ({"role": "user", "content": [{"type": "text", "text": "a"}]}, (Message("user", "a"),)),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"} | MARK, {"type": "text", "text": "b"}]},
        (Message("user", (TextPart("a", "5m"), TextPart("b"))),),
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA=="}} | HOUR,
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ],
        },
        (
            Message(
                "user",
                (
                    ImagePart(media_type="image/jpeg", data="AA==", cache="1h"),
                    ImagePart(url="https://example.org/a.png"),
                ),
            ),
        ),
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "2", "is_error": True} | MARK,
                {
                    "type": "tool_result",
                    "tool_use_id": "3",
                    "content": [{"type": "text", "text": "a"}, DOCUMENT],
                },
                {"type": "text", "text": "and now?"},
            ],
        },
        (
            Message("tool", "sunny", tool_call_id="1"),
            Message("tool", "", tool_call_id="2", error=True, cache="5m"),
            Message("tool", (TextPart("a"), ForeignPart("anthropic", DOCUMENT)), tool_call_id="3"),
            Message("user", "and now?"),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "gemini:x"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"a": [1, {"b": "é"}]}},
                {"type": "tool_use", "id": "2", "name": "weather", "input": {}} | MARK,
            ],
        },
        (
            Message(
                "assistant",
                (ReasoningPart("hm", "gemini:x"), TextPart("I look")),
                (
                    ToolCall("1", "weather", '{"a": [1, {"b": "\\u00e9"}]}'),
                    ToolCall("2", "weather", "{}", cache="5m"),
                ),
            ),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "AbC="},
                {"type": "redacted_thinking", "data": "ZZ=="},
                {"type": "redacted_thinking", "data": "anthropic-redacted:YY=="},
                {"type": "thinking", "thinking": "unsigned"},
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "server_tool_use", "id": "s"},
            ],
        },
        (
            Message(
                "assistant",
                (
                    ReasoningPart("hm", "anthropic:AbC="),
                    ReasoningPart("", "anthropic-redacted:ZZ=="),
                    ReasoningPart("", "anthropic-redacted:YY=="),
                    ReasoningPart("unsigned"),
                    ForeignPart("anthropic", {"type": "server_tool_use", "id": "s"}),
                ),
            ),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "n", "input": {}},
                {"type": "text", "text": "after"},
                {"type": "thinking", "thinking": "again", "signature": "s:2"},
                {"type": "tool_use", "id": "2", "name": "n", "input": {}},
            ],
        },
        (
            Message("assistant", "after", (ToolCall("1", "n"),)),
            Message("assistant", (ReasoningPart("again", "s:2"),), (ToolCall("2", "n"),)),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "tool-use:a%3A1:gemini:z"},
                {"type": "tool_use", "id": "a:1", "name": "n", "input": {}},
            ],
        },
        (Message("assistant", "", (ToolCall("a:1", "n", signature="gemini:z"),)),),
    ),
    (
        {"role": "system", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"} | MARK]},
        (Message("system", "one"), Message("system", (TextPart("two", "5m"),))),
    ),
]


@pytest.mark.parametrize(("turn", "messages"), TURNS)
def test_turns(turn: dict[str, Any], messages: tuple[Message, ...]) -> None:
    assert read({"messages": [HI, turn]}).request == request(messages=(Message("user", "hi"), *messages))


def test_instructions_in_blocks_stay_apart() -> None:
    system = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"} | HOUR]
    got = read({"system": system}).request
    two = Message("system", (TextPart("two", "1h"),))
    assert got.messages == (Message("system", "one"), two, Message("user", "hi"))
    assert got.system_text == "one\n\ntwo"


@pytest.mark.parametrize(
    ("thinking", "claude", "plain", "ignored"),
    [
        ({"type": "adaptive"}, Reasoning(), None, ("thinking",)),
        ({"type": "disabled"}, Reasoning(budget=0), None, ()),
        ({"type": "enabled", "budget_tokens": 2048}, Reasoning(budget=2048), Reasoning(budget=2048), ()),
        ({"type": "adaptive", "display": "omitted"}, Reasoning(), None, ("thinking.display", "thinking")),
    ],
)
def test_thinking_is_asked_of_models_that_think(
    thinking: dict[str, Any], claude: Reasoning, plain: Reasoning | None, ignored: tuple[str, ...]
) -> None:
    asked = read({"thinking": thinking})
    assert (asked.request.reasoning, asked.ignored) == (claude, ())
    assert asked.request.foreign == Foreign("anthropic", {"thinking": thinking})
    other = read({"thinking": thinking}, features=PLAIN)
    assert (other.request.reasoning, other.request.foreign, other.ignored) == (plain, None, ignored)


def test_a_plain_peer_gets_what_it_knows_or_nothing() -> None:
    assert read({"system": "s"}, route=PEER, features=()).request == request(system="s")
    with pytest.raises(BadRequest, match="can't do this: history"):
        read({"messages": [HI, {"role": "assistant", "content": "a"}, HI]}, route=PEER, features=())


def block(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [fields]}]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "system", "content": "s"}]}, "at least one message"),
        ({"messages": [{"role": "user", "content": ""}]}, "at least one message"),
        ({"messages": [{"role": "tool", "content": ""}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": 1}]}, "content"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages.0.content.0: wrong field: Expected `object`"),
        (block(), "missing required field `type`"),
        (block(type="text"), "messages.0.content.0: wrong field: Object missing required field `text`"),
        (block(type="text", text=7), "Expected `str`"),
        (block(type="image", source={"type": "base64"}), "the image's source"),
        (block(type="image", source={"type": "url"}), "the image's source"),
        (block(type="thinking", thinking="t", signature="s"), "thinking belongs to a message of the assistant"),
        (block(type="tool_use", id="1", name="n", input={}), "tool_use belongs to a message of the assistant"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]},
            "tool_result belongs to a message of the user",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "n", "input": 3}]}
                ]
            },
            "messages.0.content.0: wrong field: Expected `object",
        ),
        (
            block(type="tool_result", tool_use_id="1", content=[{"type": "text"}]),
            "messages.0.content.0.content.0: wrong field",
        ),
        (
            block(type="tool_result", tool_use_id="1", content=[{"type": "tool_use", "id": "1", "name": "n"}]),
            "no calls or results in it",
        ),
        (
            block(type="tool_result", tool_use_id="1", content=[NESTED | {"content": [NESTED | {"content": [1]}]}]),
            "messages.0.content.0.content.0: a tool's result has no calls or results in it",
        ),
        ({"system": [{"type": "image", "source": {"type": "url", "url": "u"}}]}, "system: instructions are text"),
        ({"tools": [{"name": "a"}]}, "tools.0: wrong field: Object missing required field `input_schema`"),
        ({"tools": [1]}, "tools.0"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name is missing"),
        (block(type="text", text=""), "messages is missing or empty"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": 7}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "wild"}}, "thinking.type"),
        ({"output_config": {"effort": "immense"}}, "output_config.effort"),
        ({"output_config": []}, "output_config"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(body)
    assert says in refused.value.message
