"""Anthropic's door byte by byte: what is ignored, what is refused, pings, breaks, and clients that leave."""

import asyncio
import json
from typing import Any

import pytest

from tests.fakes.claude_code_request import HEADERS, SIZE, encode_request, make_first_request
from tests.fakes.messages_llm import CLAUDE, PLAIN, MessagesLlm
from tests.flow.anthropic_asking import COUNT, HI, MESSAGES, MODEL, open_asking
from tests.flow.raw_http import raw_connection
from tests.flow.test_gateway_auth import LOCKED
from tg_base.config import GatewayConfig
from tg_schema import Message, TextPart
from tg_schema.features import Feature
from tg_schema.text_completion import Foreign, Reasoning

BODY: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": [HI]}
NEW = {"context_management": {"edits": []}, "thinking": {"type": "adaptive"}, "bad name\r\nX: y": 1}
PIECES = ("It is", " sunny.")


async def test_what_the_model_cannot_use_is_listed() -> None:
    async with open_asking(llm=MessagesLlm(PIECES, features=PLAIN)) as asking:
        for path in (MESSAGES, COUNT):
            status, _, headers = await asking.post(BODY | NEW, path, **{"anthropic-beta": "a-1"})
            assert (status, headers["X-Tokengrid-Ignored"]) == (200, "anthropic-beta, context_management, thinking")
        async with asking.it.http.post(MESSAGES, json=BODY | NEW | {"stream": True}) as response:
            assert response.headers["X-Tokengrid-Ignored"] == "context_management, thinking"
            assert response.headers["request-id"] == response.headers["X-Request-Id"]
            assert (await response.read()).endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        _, _, headers = await asking.post(BODY)
        assert "X-Tokengrid-Ignored" not in headers


async def test_what_claude_knows_is_not_listed() -> None:
    async with open_asking(PIECES) as asking:
        status, _, headers = await asking.post(BODY | {"context_management": {}}, **{"anthropic-beta": "a-1"})
        assert (status, "X-Tokengrid-Ignored" in headers) == (200, False)


@pytest.mark.parametrize("features", [CLAUDE, PLAIN], ids=["claude", "another"])
async def test_a_request_as_large_as_claude_codes_first(features: frozenset[Feature]) -> None:
    sent = make_first_request(MODEL)
    body = encode_request(sent)
    assert len(body) == SIZE
    async with open_asking(llm=MessagesLlm(PIECES, features=features)) as asking:
        async with asking.it.http.post(f"{MESSAGES}?beta=true", data=body, headers=HEADERS) as response:
            assert response.status == 200
            ignored = response.headers.get("X-Tokengrid-Ignored", "")
            assert b"sunny." in await response.read()
        asked = asking.llm.asked
    assert [tool.parameters for tool in asked.tools] == [tool["input_schema"] for tool in sent["tools"]]
    assert [tool.description for tool in asked.tools] == [tool["description"] for tool in sent["tools"]]
    assert [turn.role for turn in asked.messages] == ["system", "system", "system", "user", "system"]
    assert asked.messages[1] == Message("system", (TextPart("You are an agent.", "5m"),))
    assert asked.user == sent["metadata"]["user_id"]
    if features is PLAIN:
        assert ignored == "anthropic-beta, cache_control, context_management, output_config.effort, thinking"
        assert (asked.foreign, asked.reasoning) == (None, None)
    else:
        fields = {name: sent[name] for name in ("thinking", "context_management")}
        assert asked.foreign == Foreign("anthropic", fields, betas=tuple(HEADERS["anthropic-beta"].split(",")))
        assert (ignored, asked.reasoning) == ("", Reasoning("high"))


async def test_anybody_may_ask_whether_somebody_is_there() -> None:
    async with open_asking(PIECES, config=LOCKED) as asking:
        async with asking.it.http.head("/") as response:
            assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
        status, answer, headers = await asking.post(BODY)
        assert (status, answer["error"]["type"], headers["WWW-Authenticate"]) == (401, "authentication_error", "Bearer")


async def test_silence_is_filled_with_pings() -> None:
    config = GatewayConfig(port=0, drain=0.05, keep_alive=0.01)
    gate = asyncio.Event()
    async with open_asking([gate, *PIECES], config=config) as asking, raw_connection(asking.it.address) as raw:
        raw.post(MESSAGES, json.dumps(BODY | {"stream": True}).encode())
        ping = b'event: ping\ndata: {"type":"ping"}\n\n'
        await raw.until(ping)
        gate.set()
        await raw.until(b"event: message_stop")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "Expected `object`"),
        (b'{"model":"\xff"}', "not valid JSON"),
        (b'{"container":' + b"[" * 5000, "nested too deep"),
        (json.dumps({"model": MODEL, "messages": [HI]}).encode(), "max_tokens is missing"),
        (json.dumps(BODY | {"max_tokens": 0}).encode(), "max_tokens"),
        (json.dumps(BODY | {"messages": []}).encode(), "at least one message"),
        (json.dumps(BODY | {"tools": [{"name": "", "input_schema": {}}]}).encode(), "a name of its own"),
        (json.dumps(BODY | {"tool_choice": {"type": "any"}}).encode(), "tool_choice"),
    ],
)
async def test_what_is_wrong_is_refused_by_its_name(body: bytes, says: str) -> None:
    async with open_asking(PIECES) as asking, asking.it.http.post(MESSAGES, data=body) as response:
        answer = await response.json()
        assert (response.status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
        assert says in answer["error"]["message"]
        assert answer["request_id"] == response.headers["request-id"]
        assert response.headers["x-should-retry"] == "false"
        assert asking.llm.requests == []


async def test_a_body_that_is_too_large_and_paths_and_methods_that_are_not_there() -> None:
    config = GatewayConfig(port=0, drain=0.05, body_limit=1000, large_body_limit=1000)
    async with open_asking(PIECES, config=config) as asking:
        status, answer, _ = await asking.post(BODY | {"system": "x" * 1000})
        assert (status, answer["error"]["type"]) == (413, "request_too_large")
        status, answer, _ = await asking.post(BODY, "/v1/messages/drafts")
        assert (status, answer["error"]["type"]) == (404, "not_found_error")
        async with asking.it.http.get(MESSAGES) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
            assert (await response.json())["error"]["type"] == "invalid_request_error"


FIELDS = (
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stop_sequences", "temperature"),
    *("top_p", "top_k", "thinking", "output_config", "output_format", "metadata", "service_tier", "container"),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    0.5,
    "",
    "x",
    [],
    [None],
    [[]],
    ["x"],
    [{}],
    {},
    {"type": "x"},
    {"type": None},
)
BLOCKS = ("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result", "document", "", None, 7)
PARTS = ("text", "source", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content")


async def test_whatever_a_field_holds_it_is_no_defect() -> None:
    """Each field with each value, each kind of block with each value in each of its fields, and in each role."""
    bodies = [BODY | {field: value} for field in FIELDS for value in VALUES]
    bodies += [BODY | {"stream": value} for value in VALUES if value is not True]
    for kind in BLOCKS:
        for value in VALUES:
            block = {"type": kind, **dict.fromkeys(PARTS, value)}
            whole = {"text": "x", "id": "i", "name": "n", "tool_use_id": "i", "data": "d", "input": {}, "content": []}
            for role in ("user", "assistant", "system"):
                inner = [block | {"cache_control": value}, {"type": kind} | whole, {"type": kind, "content": [block]}]
                bodies += [BODY | {"messages": [HI, {"role": role, "content": [each]}]} for each in inner]
    async with open_asking(PIECES) as asking:
        for body in bodies:
            status, answer, _ = await asking.post(body)
            assert status in {200, 400, 404}, (body, answer)
            assert answer["type"] == ("message" if status == 200 else "error"), body
