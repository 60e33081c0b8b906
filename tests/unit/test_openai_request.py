"""The body of a chat completion -> the request record: each parameter has its field, and each bad one its name."""

import json
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from tg_base.protocol import Presence, Route
from tg_gateway.dialects import Ask, Call, Catalogue
from tg_gateway.dialects.chat import describe_error
from tg_gateway.dialects.openai.dialect import OPENAI
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
from tg_schema.errors import BadRequest, NotFound
from tg_schema.text_completion import Foreign, Reasoning

ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="small")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
CATALOGUE = Catalogue((ROUTE, PLAIN), lambda queue: [], {"gpt": "small"})
HELLO = ({"role": "user", "content": "hello"},)
WEATHER = {"name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": True}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": {"name": "time"}}]
BOTH = (Tool("weather", "d", {"type": "object"}, strict=True), Tool("time"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def call_of(body: object) -> Call:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call("chat-completion", CATALOGUE, {}, {}, {}, "r", data)


def ask(**fields: Any) -> Ask:
    asked = OPENAI.parse(call_of({"model": "small", "messages": HELLO, **fields}))
    assert isinstance(asked, Ask)
    return asked


def parse(**fields: Any) -> TextCompletionRequest:
    asked = ask(**fields)
    request = asked.request
    assert isinstance(request, TextCompletionRequest)
    assert asked.streaming is bool(request.streaming)
    return request


def expected(**fields: Any) -> TextCompletionRequest:
    return msgspec.structs.replace(TextCompletionRequest(prompt="hello", model="small"), **fields)


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({"temperature": 0}, Sampling(temperature=0)),
        ({"top_p": 0.5}, Sampling(top_p=0.5)),
        ({"max_tokens": 7}, Sampling(max_tokens=7)),
        ({"max_completion_tokens": 7}, Sampling(max_tokens=7)),
        ({"max_tokens": 7, "max_completion_tokens": 7}, Sampling(max_tokens=7)),
        ({"stop": "END"}, Sampling(stop=("END",))),
        ({"stop": ["a", "b"]}, Sampling(stop=("a", "b"))),
        ({"seed": -3}, Sampling(seed=-3)),
        ({"n": 3}, Sampling(n=3)),
        ({"presence_penalty": -2, "frequency_penalty": 2}, Sampling(presence_penalty=-2, frequency_penalty=2)),
        ({"logit_bias": {"50256": -100}}, Sampling(logit_bias={50256: -100})),
        ({"logprobs": True}, Sampling(logprobs=0)),
        ({"logprobs": True, "top_logprobs": 5}, Sampling(logprobs=5)),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": False}, None),
        ({"n": 2, "best_of": 4}, Sampling(n=2, best_of=4)),
        ({"top_k": 4, "min_p": 0.1, "typical_p": 0.2}, Sampling(top_k=4, min_p=0.1, typical_p=0.2)),
        ({"repetition_penalty": 1.1, "length_penalty": 2}, Sampling(repetition_penalty=1.1, length_penalty=2)),
        ({"min_tokens": 4, "ignore_eos": True}, Sampling(min_tokens=4, ignore_eos=True)),
        ({"stop_token_ids": [1], "include_stop_str_in_output": True}, Sampling(stop_ids=(1,), keep_stop=True)),
        ({"temperature": None, "stop": None, "n": None, "logit_bias": None}, None),
    ],
)
def test_sampling(fields: dict[str, Any], sampling: Sampling | None) -> None:
    assert parse(**fields) == expected(sampling=sampling)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"stream": True}, {"streaming": True}),
        ({"model": "gpt"}, {}),
        ({"model": "gpt:soft"}, {"adapter": "soft"}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"response_format": "json"}),
        ({"response_format": {"type": "json"}}, {"response_format": "json"}),
        ({"response_format": {"type": "json", "value": SCHEMA}}, {"schema": SCHEMA}),
        ({"response_format": {"type": "regex", "value": "[0-9]+"}}, {"regex": "[0-9]+"}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": SCHEMA, "description": "d"},
                }
            },
            {"schema": SCHEMA, "schema_name": "a", "schema_description": "d", "schema_strict": True},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
            {"schema": SCHEMA, "schema_name": "a"},
        ),
        ({"structured_outputs": {"json": SCHEMA}}, {"schema": SCHEMA}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ("a", "b")}),
        ({"reasoning_effort": "xhigh"}, {"reasoning": Reasoning("xhigh")}),
        ({"user": "u", "safety_identifier": "s"}, {"user": "u"}),
        ({"safety_identifier": "s"}, {"user": "s"}),
        ({"prompt_cache_key": "k", "priority": -1}, {"cache_key": "k", "priority": -1}),
        ({"modalities": ["text"], "store": True, "metadata": {"a": "b"}, "service_tier": "flex"}, {}),
        ({"verbosity": "low"}, {"foreign": Foreign("openai", {"verbosity": "low"})}),
        ({"parallel_tool_calls": False}, {}),
        ({"tools": TOOLS}, {"tools": BOTH}),
        ({"tools": TOOLS, "parallel_tool_calls": True}, {"tools": BOTH}),
        ({"tools": TOOLS, "parallel_tool_calls": False}, {"tools": BOTH, "parallel_tool_calls": False}),
        ({"tools": TOOLS, "tool_choice": "required"}, {"tools": BOTH, "tool_choice": "required"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "time"}}},
            {"tools": BOTH, "tool_choice": "time"},
        ),
        (
            {"tools": TOOLS, "tool_choice": {"function": {"name": "time"}}},
            {"tools": BOTH, "tool_choice": "time"},
        ),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS[1:]}},
            },
            {"tools": BOTH, "tool_choice": "required", "allowed_tools": ("time",)},
        ),
    ],
)
def test_the_other_parameters(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert parse(**fields) == expected(**wanted)


CALL = {"id": "c", "type": "function", "function": {"name": "time", "arguments": '{"a":1}'}}
SIGNED_CALL = {**CALL, "extra_content": {"tokengrid": {"signature": "google:s"}}}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}}
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "anthropic:s", "index": 0}


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        ({"role": "developer", "content": "d"}, Message("developer", "d")),
        ({"role": "system", "content": "s", "name": "n"}, Message("system", "s", name="n")),
        ({"role": "user", "content": [{"type": "text", "text": "t"}]}, Message("user", "t")),
        (
            {"role": "user", "content": [{"type": "text", "text": "t"}, PNG, LINK]},
            Message(
                "user",
                (TextPart("t"), ImagePart(data="aGk="), ImagePart(url="https://example.org/a.jpg")),
            ),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            Message("assistant", "", (ToolCall("c", "time", '{"a":1}'),)),
        ),
        (
            {"role": "assistant", "tool_calls": [SIGNED_CALL]},
            Message("assistant", "", (ToolCall("c", "time", '{"a":1}', "google:s"),)),
        ),
        ({"role": "assistant", "content": None, "refusal": "no"}, Message("assistant", "no")),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, Message("assistant", "no")),
        (
            {"role": "assistant", "content": "a", "reasoning_content": "hm"},
            Message("assistant", (ReasoningPart("hm"), TextPart("a"))),
        ),
        (
            {"role": "assistant", "content": None, "reasoning_content": "hm", "reasoning_details": [SIGNED]},
            Message("assistant", (ReasoningPart("hm", "anthropic:s"),)),
        ),
        ({"role": "tool", "tool_call_id": "c", "content": "12"}, Message("tool", "12", tool_call_id="c")),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "12"}]},
            Message("tool", "12", tool_call_id="c"),
        ),
    ],
)
def test_turns(turn: dict[str, Any], wanted: Message) -> None:
    request = parse(messages=[*HELLO, turn, *HELLO])
    assert request == expected(prompt=None, messages=(Message("user", "hello"), wanted, Message("user", "hello")))


def test_a_single_question_is_one_that_a_plain_peer_can_read() -> None:
    instructions = [{"role": "system", "content": text} for text in ("a", "b")]
    request = parse(messages=[*instructions, *HELLO], model="old")
    assert request == TextCompletionRequest("a\n\nb", "hello", model="old")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [*HELLO, *HELLO]}, "messages"),
        ({"messages": [{"role": "user", "content": [PNG]}]}, "messages"),
        ({"tools": TOOLS}, None),
        ({"stop": "a"}, None),
    ],
)
def test_a_plain_peer_is_asked_nothing_that_it_would_not_read(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(model="old", **fields)
    assert describe_error(refused.value).param == param


def choosing(**choice: Any) -> dict[str, Any]:
    return {"tools": TOOLS, "tool_choice": choice}


def turn(**fields: Any) -> dict[str, Any]:
    return {"messages": [*HELLO, {"role": "user", **fields}]}


FORMAT = "response_format"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "s"}]}, "messages"),
        ({"messages": "hello"}, "messages"),
        (turn(role="function"), "messages[1].role"),
        (turn(content=3), "messages[1].content"),
        (turn(content=[{"type": "input_audio"}]), "messages[1].content[0].type"),
        (turn(content=[{"type": "image_url"}]), "messages[1].content[0].image_url"),
        (turn(content=[{"type": "image_url", "image_url": "file:///a"}]), "messages[1].content[0].image_url"),
        (
            turn(content=[{"type": "image_url", "image_url": "data:text/html;base64,"}]),
            "messages[1].content[0].image_url",
        ),
        (
            turn(content=[{"type": "image_url", "image_url": f"data:image/png{';a=b' * 64};base64,QQ=="}]),
            "messages[1].content[0].image_url",
        ),
        (turn(role="tool", content="a"), "messages[1].tool_call_id"),
        (turn(content=[{"type": "text"}]), "messages[1].content[0].text"),
        (turn(content=[{"type": "refusal", "text": "no"}]), "messages[1].content[0].refusal"),
        (turn(role="assistant", audio={"id": "a"}), "messages[1].audio"),
        (turn(role="assistant", function_call={"name": "f"}), "messages[1].function_call"),
        (turn(role="assistant", tool_calls=[{"id": "c", "type": "custom"}]), "messages[1].tool_calls[0].type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        (
            {
                "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
                "structured_outputs": {"json": SCHEMA},
            },
            "structured_outputs",
        ),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"stop": ["a", ""]}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "v"}}, "audio"),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"moderation": {}}, "moderation"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
        ({"tool_choice": "any"}, "tool_choice"),
        (choosing(type="custom"), "tool_choice.type"),
        (choosing(type="function", function={"name": "x"}), "tool_choice.function.name"),
        (
            choosing(type="allowed_tools", allowed_tools={"mode": "auto", "tools": []}),
            "tool_choice.allowed_tools.tools",
        ),
        (
            choosing(
                type="allowed_tools",
                allowed_tools={"mode": "auto", "tools": [{"type": "function", "function": {"name": "x"}}]},
            ),
            "tool_choice.allowed_tools.tools",
        ),
        ({FORMAT: {"type": "xml"}}, "response_format.type"),
        ({FORMAT: {"type": "json", "value": "{}"}}, "response_format.value"),
        ({FORMAT: {"type": "regex"}}, "response_format.value"),
        ({FORMAT: {"type": "regex", "value": SCHEMA}}, "response_format.value"),
        ({FORMAT: {"type": "regex", "value": "a"}, "structured_outputs": {"regex": "b"}}, "structured_outputs"),
        (choosing(), "tool_choice.type"),
        ({FORMAT: {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({FORMAT: "json"}, FORMAT),
        ({"structured_outputs": {"grammar": "g"}}, "structured_outputs"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(**fields)
    told = describe_error(refused.value)
    assert (told.param, told.type) == (param, "invalid_request_error")
    assert param.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0] in told.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"3", b'"a"', b"\xff", b"[" * 100_000])
def test_what_is_no_object_of_json(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"not valid JSON|wrong field"):
        OPENAI.parse(call_of(body))


def test_an_unknown_model() -> None:
    with pytest.raises(NotFound, match="there is no model 'gpt-9'; there are: small, old, gpt"):
        parse(model="gpt-9")


@pytest.mark.parametrize("streaming", [True, False])
def test_unknown_fields_are_told_and_logged_once(streaming: bool) -> None:
    name = f"style_{streaming}"
    with capture_logs() as logs:
        for _ in range(3):
            asked = ask(stream=streaming, store=True, verbosity="low", **{name: "secret", "x" * 1000: 1})
            assert asked.request == expected(streaming=streaming, foreign=Foreign("openai", {"verbosity": "low"}))
            assert asked.headers["X-Tokengrid-Ignored"] == f"store, {name}, verbosity"
    assert [entry["field"] for entry in logs if entry["field"] == name] == [name]
    assert "secret" not in str(logs)
    assert "X-Tokengrid-Ignored" not in ask(stream=streaming, store=None).headers


@pytest.mark.parametrize(("detail", "told"), [("low", True), ("auto", False), (None, False)])
def test_how_closely_to_look_at_an_image_is_ignored(detail: str | None, told: bool) -> None:
    url = {"url": "https://example.org/a.jpg", "detail": detail}
    asked = ask(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": url}]}])
    assert (asked.headers.get("X-Tokengrid-Ignored") == "messages.image_url.detail") is told


def test_thinking_of_which_nothing_is_known_is_left_out() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}, {"text": "hm"}]
    request = parse(messages=[*HELLO, {"role": "assistant", "content": "a", "reasoning_details": details}])
    assert request.messages[1].parts == (ReasoningPart("hm"), TextPart("a"))


@pytest.mark.parametrize(("features", "reasoning"), [((), None), (("reasoning", "openai_fields"), Reasoning("none"))])
def test_what_depends_on_the_model(features: tuple[str, ...], reasoning: Reasoning | None) -> None:
    live = Presence("p", ("q/default",), 1, 0, ("small",), features=features)
    catalogue = Catalogue((ROUTE,), lambda queue: [live], {})
    fields = {"model": "small", "messages": HELLO, "reasoning_effort": "none", "verbosity": "low"}
    asked = OPENAI.parse(Call("chat-completion", catalogue, {}, {}, {}, "r", json.dumps(fields).encode()))
    assert isinstance(asked, Ask)
    assert asked.request.reasoning == reasoning
    assert ("X-Tokengrid-Ignored" in asked.headers) is not bool(features)
