"""The Responses API: as OpenAI's own SDK uses it, and byte by byte."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.fakes.token_counter import TokenCounter
from tests.fakes.turns_llm import Turn, TurnsLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.open_responses import MODEL, PLAIN_FEATURES, open_responses
from tests.flow.responses_stream import check_stream, read_events
from tg_base.llm import LlmChunk
from tg_gateway.dialects.responses.request import read_body
from tg_schema import Message, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, IncompleteStream

HELLO: Turn = ("Hel", "lo")
THINKS: Turn = (LlmChunk(reasoning="so "), LlmChunk(reasoning="it is"), LlmChunk(signature="X:proof"), "Yes")
CALLS: Turn = (
    "Wait",
    ToolCallDelta(0, "c1", "f", '{"a"'),
    ToolCallDelta(1, "c2", "f", "{}"),
    ToolCallDelta(0, arguments=":1}"),
)
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "https://localhost/cat.png"}]}
F: Any = {
    "type": "function",
    "name": "f",
    "description": "does f",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


def common(response: Response) -> dict[str, Any]:
    """What the answers to two equal requests have in common: all but ids and times."""
    said = json.loads(response.to_json())
    for name in ("id", "created_at", "completed_at"):
        del said[name]
    for item in said["output"]:
        del item["id"]
        for part in item.get("content") or ():
            part.pop("parsed", None)
        item.pop("parsed_arguments", None)
    return dict(said)


@pytest.mark.parametrize("turn", [HELLO, THINKS, CALLS, ()])
async def test_a_stream_ends_with_the_whole_answer(turn: Turn) -> None:
    async with open_responses(turn) as it:
        ask: Any = {"model": MODEL, "input": "hi", "tools": [F], "include": ["reasoning.encrypted_content"]}
        whole = await it.client.responses.create(**ask)
        async with it.client.responses.stream(**ask) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        assert events[-1].type == "response.completed"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert common(final) == common(whole)
        assert whole.output_text == "".join(
            event.delta for event in events if event.type == "response.output_text.delta"
        )


async def test_the_synchronous_client() -> None:
    async with open_responses(HELLO) as it:
        url = str(it.client.base_url)

        def ask() -> tuple[str, str]:
            with OpenAI(base_url=url, api_key="any", max_retries=0) as client:
                whole = client.responses.create(model=MODEL, input="hi").output_text
                with client.responses.stream(model=MODEL, input="hi") as stream:
                    return whole, stream.get_final_response().output_text

        assert await asyncio.to_thread(ask) == ("Hello", "Hello")


class Point(BaseModel):
    x: int


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_of_a_schema_is_parsed(streamed: bool) -> None:
    async with open_responses(('{"x"', ":7}")) as it:
        if streamed:
            async with it.client.responses.stream(model=MODEL, input="hi", text_format=Point) as stream:
                parsed = (await stream.get_final_response()).output_parsed
        else:
            parsed = (await it.client.responses.parse(model=MODEL, input="hi", text_format=Point)).output_parsed
        assert parsed == Point(x=7)
        assert (it.llm.requests[0].schema or {})["properties"].keys() == {"x"}


async def test_calls_and_thinking_come_back_with_the_next_request() -> None:
    turn: Turn = (LlmChunk(reasoning="hm"), LlmChunk(signature="X:proof"), *CALLS)
    async with open_responses(turn, HELLO) as it:
        include: Any = ["reasoning.encrypted_content"]
        first = await it.client.responses.create(model=MODEL, input="hi", tools=[F], include=include, store=False)
        calls = [item for item in first.output if item.type == "function_call"]
        assert [(call.call_id, call.arguments) for call in calls] == [("c1", '{"a":1}'), ("c2", "{}")]
        items: Any = [{"role": "user", "content": "hi"}, *(item.to_dict() for item in first.output)]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
        second = await it.client.responses.create(model=MODEL, input=items, tools=[F], store=False)
        assert second.output_text == "Hello"
        user, assistant, *tools = it.llm.requests[1].messages
        assert user == Message("user", "hi")
        assert assistant.parts[0] == ReasoningPart("hm", "X:proof")
        assert (assistant.text, [call.arguments for call in assistant.tool_calls]) == ("Wait", ['{"a":1}', "{}"])
        assert [(turn.role, turn.tool_call_id, turn.text) for turn in tools] == [
            ("tool", "c1", "done"),
            ("tool", "c2", "done"),
        ]


async def test_a_limit_makes_it_incomplete() -> None:
    async with open_responses(("Hel", LlmChunk(in_token=3, out_token=1, finish_reason="length"))) as it:
        whole = await it.client.responses.create(model=MODEL, input="hi", max_output_tokens=1)
        assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "there is no model 'nobody'"),
        ({"max_output_tokens": 0}, openai.BadRequestError, "max_output_tokens"),
        ({"previous_response_id": "resp_1"}, openai.BadRequestError, "send the earlier items in input"),
        ({"background": True, "store": False}, openai.BadRequestError, "background: false"),
        ({"reasoning": {"effort": "high"}}, openai.BadRequestError, "the model can't do this: reasoning"),
        ({"input": [IMAGE]}, openai.BadRequestError, "the model can't do this: images"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, openai.BadRequestError, "send the item itself"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_raises_the_right_class(
    fields: dict[str, Any], kind: type[openai.APIStatusError], says: str, streamed: bool
) -> None:
    async with open_responses(HELLO, features=PLAIN_FEATURES - {"images"}) as it:
        with pytest.raises(kind, match=says):
            await it.client.responses.create(**({"model": MODEL, "input": "hi"} | fields), stream=streamed)
        assert it.llm.requests == []


async def test_a_failure_in_mid_stream_is_never_a_clean_end() -> None:
    async with open_responses(("Hel", IncompleteStream("the provider's stream was cut"))) as it:
        stream = await it.client.responses.create(model=MODEL, input="hi", stream=True)
        events: list[Any] = []
        with pytest.raises(openai.APIConnectionError):
            await _gather(stream, events)
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None
        assert events[-1].response.error.message == "the provider's stream was cut"


async def _gather(stream: AsyncIterator[Any], events: list[Any]) -> None:
    async for event in stream:
        events += [event]


async def test_tokens_of_a_request_are_counted() -> None:
    async with open_responses(llm=TokenCounter(MODEL)) as it:
        counted = await it.client.responses.input_tokens.count(model=MODEL, input="how many", instructions="count")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 3)
        assert it.llm.requests[0].operation == "count-tokens"


async def test_a_model_that_does_not_count_is_named() -> None:
    async with open_responses(HELLO, features=PLAIN_FEATURES) as it:
        with pytest.raises(openai.BadRequestError, match="count_tokens"):
            await it.client.responses.input_tokens.count(model=MODEL, input="hi")


PATH = "/v1/responses"
CODEX = json.loads((Path(__file__).parents[1] / "unit" / "codex_request.json").read_bytes()) | {"model": MODEL}


async def ask(it: Opened, body: object, method: str = "POST", path: str = PATH, **headers: str) -> tuple[int, Any, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.request(method, path, data=data, headers=headers) as response:
        assert response.content_type == "application/json"
        return response.status, json.loads(await response.read()), response.headers


async def test_a_stream() -> None:
    async with open_gateway() as it:
        body = {"model": MODEL, "input": "2", "stream": True, "odd": 1}
        async with it.http.post(PATH, json=body) as response:
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["X-Tokengrid-Ignored"] == "odd"
            events = read_events(await response.read())
    final = check_stream(events)
    assert final["output"][0]["content"][0]["text"] == "0 1 "
    assert (final["usage"]["input_tokens"], final["usage"]["output_tokens"]) == (7, 2)


async def test_a_whole_answer() -> None:
    async with open_gateway() as it:
        status, answer, headers = await ask(it, {"model": MODEL, "input": "2"})
    assert (status, answer["object"], answer["status"], answer["model"]) == (200, "response", "completed", MODEL)
    assert "X-Tokengrid-Ignored" not in headers


async def test_codex_gets_its_call_and_gives_the_result() -> None:
    turn = ("Let me see.", ToolCallDelta(0, "call_7", "exec_command", '{"cmd":"ls"}'))
    llm = TurnsLlm(turn, ("There is nothing.",), features=PLAIN_FEATURES, model=MODEL)
    async with open_gateway(instead=llm) as it:
        async with it.http.post(PATH, json=CODEX) as response:
            ignored = response.headers["X-Tokengrid-Ignored"].split(", ")
            final = check_stream(read_events(await response.read()))
        output = {"type": "function_call_output", "call_id": "call_7", "output": ""}
        again = CODEX | {"input": [*CODEX["input"], *final["output"], output]}
        async with it.http.post(PATH, json=again) as response:
            last = check_stream(read_events(await response.read()))
    assert ignored[:2] == ["client_metadata", "tools.custom.apply_patch"]
    assert [item["type"] for item in final["output"]] == ["message", "function_call"]
    assert [turn.role for turn in llm.requests[1].messages[-2:]] == ["assistant", "tool"]
    assert last["output"][0]["content"][0]["text"] == "There is nothing."


@pytest.mark.parametrize(
    ("asked", "body", "status", "param", "says"),
    [
        (("POST", PATH), b"{", 400, None, "not valid JSON"),
        (("POST", PATH), b"\xff", 400, None, "not valid JSON"),
        (("POST", PATH), b'{"a":' + b"[" * 100_000, 400, None, "not valid JSON"),
        (("POST", PATH), [], 400, None, "wrong field"),
        (("POST", PATH), {"model": MODEL, "input": {}}, 400, "input", "wrong field"),
        (("POST", PATH), {"model": "nobody", "input": "1"}, 404, "model", "there is no model 'nobody'"),
        (("POST", PATH), {"model": MODEL, "input": "1", "top_logprobs": 99}, 400, "top_logprobs", "<= 20"),
        (("POST", f"{PATH}/input_tokens"), {"model": MODEL}, 400, "input", "input is missing"),
        (("POST", f"{PATH}/input_tokens"), {"model": MODEL, "input": "1"}, 400, None, "count_tokens"),
        (("PUT", PATH), {}, 405, None, "the method PUT"),
        (("GET", f"{PATH}/resp_1"), b"", 404, None, "no response of this id is kept"),
        (("DELETE", f"{PATH}/resp_1"), b"", 404, None, "no response of this id is kept"),
        (("GET", f"{PATH}/resp_1/input_items"), b"", 404, None, "no response of this id is kept"),
        (("POST", f"{PATH}/resp_1/cancel"), b"", 404, None, "no response of this id is kept"),
        (("POST", PATH), {"model": MODEL, "input": "1", "background": True, "store": False}, 400, "store", "is kept"),
        (("POST", f"{PATH}/compact"), {"input": "hi"}, 400, "model", "name the model"),
        (("POST", f"{PATH}/compact"), {"model": MODEL}, 400, "input", "input is missing"),
        (("POST", f"{PATH}/compact"), {"model": MODEL, "input": [{"type": "odd"}]}, 400, "input[0].type", "'odd'"),
        (("POST", f"{PATH}/compact"), {"model": "nobody", "input": "hi"}, 404, "model", "there is no model"),
        (("POST", f"{PATH}/resp_1/else"), {}, 404, None, "no such path"),
    ],
)
async def test_refusals_have_its_shape(
    asked: tuple[str, str], body: object, status: int, param: str | None, says: str
) -> None:
    async with open_gateway() as it:
        got, answer, headers = await ask(it, body, *asked)
    assert (got, set(answer), set(answer["error"])) == (status, {"error"}, {"message", "type", "param", "code"})
    assert (answer["error"]["param"], answer["error"]["type"]) == (param, "invalid_request_error")
    assert says in answer["error"]["message"]
    assert headers["x-should-retry"] == "false"


PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {"type": "function", "name": "get_weather", "description": "weather of a place", "parameters": {}}


def said(role: str, content: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"input": [said("user", "hello")]}, "message"),
        ({"input": [said("system", "be a pirate"), said("user", "hello")]}, "message"),
        ({"input": [said("user", "My name is A."), said("assistant", "Hi A."), said("user", "My name?")]}, "message"),
        (
            {
                "input": [
                    said("assistant", "I think.") | {"phase": "commentary"},
                    said("assistant", "Four.") | {"phase": "final_answer"},
                    said("user", "Again?"),
                ]
            },
            "message",
        ),
        ({"input": [said("user", [{"type": "input_image", "image_url": PIXEL}])]}, "message"),
        ({"input": [said("user", "How is the weather?")], "tools": [WEATHER]}, "function_call"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_open_responses_compliance_runner_asks(fields: dict[str, object], kind: str, streamed: bool) -> None:
    call = ToolCallDelta(0, "call_1", "get_weather", '{"location":"here"}')
    turn = (call,) if kind == "function_call" else ("Hello",)
    llm = TurnsLlm(turn, features=PLAIN_FEATURES, model=MODEL)
    body = {"model": MODEL, "stream": streamed} | fields
    async with open_gateway(instead=llm) as it, it.http.post(PATH, json=body) as response:
        data = await response.read()
    final = check_stream(read_events(data)) if streamed else json.loads(data)
    assert (final["status"], [item["type"] for item in final["output"]]) == ("completed", [kind])


@pytest.mark.parametrize("depth", [100, 900, 950, 980, 985, 990, 1000, 2000])
async def test_a_deep_schema_is_taken_or_refused(depth: int) -> None:
    deep = b'{"a":' * depth + b"{}" + b"}" * depth
    tools = b'{"model":"counting","input":"1","tools":[{"type":"function","name":"f","parameters":%b}]}' % deep
    async with open_gateway() as it:
        status, answer, _ = await ask(it, tools)
    assert (status, answer["object" if status == 200 else "error"] is not None) in {(200, True), (400, True)}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from([*sorted(CODEX), "text", "top_p", "metadata", "prompt", "conversation"]), VALUES)
def test_whatever_a_field_has_it_is_taken_or_refused(name: str, value: Any) -> None:
    with contextlib.suppress(BadRequest):
        read_body(json.dumps(CODEX | {name: value}).encode())
