"""Agents through the gateway: JSON, events and the WebSocket; what is refused, and what leaving stops."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.flow.open_agent import OpenedAgent, open_agent
from tg_schema import AgentRequest, AgentResponse
from tg_schema.errors import Timeout

SHORT = "/api/v1/agent"
LONG = "/api/v1/flow/default/service/agent"
SOCKET = "/api/v1/socket"
FLAGS = ("chunk_type", "message_type", "content", "end_of_message", "end_of_dialog")
Json = dict[str, Any]


@pytest.fixture
async def it() -> AsyncIterator[OpenedAgent]:
    async with open_agent() as opened:
        yield opened


def wire(record: AgentResponse) -> Json:
    """How a record looks outside."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name != "error"}
    known = {name: value for name, value in fields.items() if value not in (None, ()) or name == "content"}
    return known | {"message_type": record.chunk_type}


async def events(it: OpenedAgent, body: Json, path: str = SHORT) -> list[Json]:
    """All events of a streaming answer."""
    async with it.http.post(path, json=body) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        text = await response.text()
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def frames(it: OpenedAgent, request: Json) -> list[Json]:
    """All frames of one request on a socket of its own."""
    async with it.http.ws_connect(SOCKET) as socket:
        await socket.send_json({"id": 1, "service": "agent", "request": request})
        received: list[Json] = []
        while not received or not received[-1]["complete"]:
            received.append(await socket.receive_json(timeout=5))
    return received


@pytest.mark.parametrize("path", [SHORT, LONG])
async def test_a_whole_answer(it: OpenedAgent, path: str) -> None:
    async with it.http.post(path, json={"question": "2 + 3?"}) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        answer = await response.json()
    assert answer == {
        "chunk_type": "answer",
        "message_type": "answer",
        "content": "It is 5.",
        "end_of_message": True,
        "end_of_dialog": True,
        "message_id": "d/answer",
        "in_token": 40,
        "out_token": 9,
        "model": "scripted",
        "finish_reason": "stop",
    }
    assert it.agent.requests == [AgentRequest("2 + 3?")]


@pytest.mark.parametrize("path", [SHORT, LONG])
async def test_events_as_they_are_made(it: OpenedAgent, path: str) -> None:
    it.agent.step = asyncio.Semaphore(1)
    async with it.http.post(path, json={"question": "2 + 3?", "streaming": True}) as response:
        assert response.content_type == "text/event-stream"
        for number, record in enumerate(DIALOG, 1):
            line = await asyncio.wait_for(response.content.readuntil(b"\n\n"), 5)
            assert json.loads(line.removeprefix(b"data: ")) == wire(record)
            assert it.agent.said == number
            it.agent.step.release()
        assert await response.content.read() == b""


async def test_frames(it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(0)
    async with it.http.ws_connect(SOCKET) as socket:
        await socket.send_json({"id": "q", "service": "agent", "request": {"question": "2 + 3?", "streaming": True}})
        for record in DIALOG:
            it.agent.step.release()
            frame = await socket.receive_json(timeout=5)
            assert frame == {"id": "q", "response": wire(record), "complete": record is DIALOG[-1]}


async def test_every_door_says_that_an_answer_is_cut() -> None:
    cut = msgspec.structs.replace(DIALOG[-1], finish_reason="length")
    question = {"question": "q"}
    async with open_agent(ScriptedAgent((*DIALOG[:-1], cut))) as it:
        async with it.http.post(SHORT, json=question) as response:
            assert (await response.json())["finish_reason"] == "length"
        told = await events(it, question | {"streaming": True})
        framed = await frames(it, question | {"streaming": True})
        (whole,) = await frames(it, question)
    for records in (told, [frame["response"] for frame in framed], [whole["response"]]):
        assert [record.get("finish_reason") for record in records] == [None] * (len(records) - 1) + ["length"]


async def test_chunks_that_wait_are_joined_within_their_message(it: OpenedAgent) -> None:
    said = await events(it, {"question": "2 + 3?", "streaming": True})
    assert all(set(FLAGS) <= set(event) for event in said)
    assert [event["end_of_dialog"] for event in said] == [False] * (len(said) - 1) + [True]
    texts: dict[str, str] = {}
    for event in said:
        texts[event["message_id"]] = texts.get(event["message_id"], "") + event["content"]
    assert list(texts.values()) == ["I must add.", "sum", "5.0", "Done.", "It is 5."]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "question is missing"),
        ({"question": None}, "question is missing"),
        ({"question": " \n"}, "question is missing"),
        ({"question": 7}, "$.question"),
        ({"question": "q", "group": "maths"}, "$.group"),
        ({"question": "q", "group": [1]}, "$.group["),
        ({"question": "q", "history": [{"thought": 1}]}, "$.history["),
        ({"question": "q", "streaming": "yes"}, "$.streaming"),
        ([], "Expected `object`"),
    ],
)
async def test_bad_input_is_named(it: OpenedAgent, body: Any, says: str) -> None:
    async with it.http.post(SHORT, json=body) as response:
        answer = await response.json()
        assert (response.status, answer["error"]["type"]) == (400, "bad-request")
    assert says in answer["error"]["message"]
    (frame,) = await frames(it, body)
    assert frame["error"]["type"] == "bad-request"
    assert says in frame["error"]["message"]
    assert not it.agent.requests


async def test_a_failure_before_the_first_chunk_has_a_status() -> None:
    async with open_agent(ScriptedAgent((), Timeout("the tool took too long"))) as it:
        for streaming in (True, False):
            async with it.http.post(SHORT, json={"question": "q", "streaming": streaming}) as response:
                assert response.status == 504
                assert (await response.json())["error"] == {"type": "timeout", "message": "the tool took too long"}


async def test_a_failure_in_mid_dialog_is_the_last_event() -> None:
    async with open_agent(ScriptedAgent(DIALOG[:3], Timeout("the tool took too long"))) as it:
        *said, last = await events(it, {"question": "q", "streaming": True})
        assert [event["chunk_type"] for event in said][-1] == "action"
        assert last == {
            "chunk_type": "error",
            "message_type": "error",
            "content": "the tool took too long",
            "error": {"type": "timeout", "message": "the tool took too long"},
            "end_of_message": True,
            "end_of_dialog": True,
        }
        *_, frame = await frames(it, {"question": "q", "streaming": True})
        assert frame["error"] == {"type": "timeout", "message": "the tool took too long"}
        (frame,) = await frames(it, {"question": "q"})
        assert frame["error"]["type"] == "timeout"


async def test_the_flow_service_tells_of_agents(it: OpenedAgent) -> None:
    async with it.http.ws_connect(SOCKET) as socket:
        request = {"operation": "get-flow", "flow-id": "default"}
        await socket.send_json({"id": 1, "service": "flow", "request": request})
        flow = json.loads((await socket.receive_json(timeout=5))["response"]["flow"])
    assert flow["interfaces"]["agent"]["request"].endswith("agent")
