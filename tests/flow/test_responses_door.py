"""The Responses API's bytes over HTTP: heads, refusals in its shape, Codex's request, keys, ends that are no ends."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.failing_llm import FailingLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.open_responses import MODEL, PLAIN_FEATURES
from tests.flow.responses_stream import check_stream, read_events
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.dialects.responses.request import read_body
from tg_schema import ToolCallDelta
from tg_schema.errors import BadRequest

PATH = "/v1/responses"
CODEX = json.loads((Path(__file__).parents[1] / "unit" / "codex_request.json").read_bytes()) | {"model": MODEL}
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=1)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


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


async def test_a_body_over_the_limit() -> None:
    async with open_gateway(GatewayConfig(port=0, body_limit=100, large_body_limit=100)) as it:
        status, answer, _ = await ask(it, {"model": MODEL, "input": "1" * 200})
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


async def test_a_key_and_its_limit() -> None:
    async with open_gateway(LOCKED) as it:
        body = {"model": MODEL, "input": "1"}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, answer, _ = await ask(it, body, **headers)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert (await ask(it, body, Authorization="Bearer right"))[0] == 200
        status, answer, told = await ask(it, body, Authorization="Bearer right")
        assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (told["Retry-After"], told["x-should-retry"]) == ("60", "true")


@pytest.mark.parametrize("keep_alive", [0.01, 60])
async def test_a_failure_in_mid_stream_breaks_the_body(keep_alive: float) -> None:
    config = GatewayConfig(port=0, drain=0.05, keep_alive=keep_alive)
    async with open_gateway(config, llm=FailingLlm()) as it:
        data = bytearray()
        async with it.http.post(PATH, json={"model": MODEL, "input": "2", "stream": True}) as response:
            with pytest.raises(ClientPayloadError):
                await _read(response.content.iter_any(), data)
        final = check_stream(read_events(bytes(data)))
    assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
    assert final["output"][0]["status"] == "incomplete"


async def _read(pieces: Any, into: bytearray) -> None:
    async for piece in pieces:
        into += piece


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
