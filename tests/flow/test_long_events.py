"""Answers in long pieces: every event and frame fits into the line of a reader with the limits that are common."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.fakes.scripted_llm import ScriptedLlm
from tests.flow.command import ran
from tests.flow.open_agent import open_agent
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, TEXTS
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.server import Processor
from tg_client import Action, TgClient
from tg_gateway.app import Gateway
from tg_schema import AgentResponse

LINE = 128 * 1024
"""Bytes of a line that aiohttp's reader takes."""
LONG = {
    "ascii": "x" * 1_000_000,
    "umlauts": "ä€🙂" * 100_000,
    "escapes": '\x00\x1f"\\\n' * 60_000,
}
"""Each is more JSON than a line may have; an escape takes six bytes for one."""
Json = dict[str, Any]


async def events(http: ClientSession, path: str, request: Json) -> list[Json]:
    """Read line by line, as clients do; a line over the limit raises."""
    received = []
    async with http.post(path, json=request | {"streaming": True}) as response:
        while line := await response.content.readline():
            assert len(line) < LINE
            if line.startswith(b"data: "):
                received.append(json.loads(line.removeprefix(b"data: ")))
    return received


async def frames(http: ClientSession, service: str, request: Json) -> list[Json]:
    received: list[Json] = []
    async with http.ws_connect("/api/v1/socket", max_msg_size=LINE) as socket:
        await socket.send_json({"id": 1, "service": service, "request": request | {"streaming": True}})
        while not received or not received[-1]["complete"]:
            received.append(await socket.receive_json(timeout=60))
    return [frame["response"] for frame in received]


@asynccontextmanager
async def gateway_of(llm: ScriptedLlm) -> AsyncIterator[ClientSession]:
    bus = MemoryBus()
    async with (
        Processor(bus, CONFIG.topics, llm, TEXTS, grace=0.05),
        Requestor(bus, CONFIG.topics) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        yield http
    await bus.aclose()


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_a_text_completion(text: str) -> None:
    request = {"prompt": "p"}
    async with gateway_of(ScriptedLlm("begin ", text, " end", finish_reason="length")) as http:
        for told in (
            await events(http, "/api/v1/text-completion", request),
            await frames(http, "text-completion", request),
        ):
            assert "".join(record["response"] for record in told) == f"begin {text} end"
            assert [record["end_of_stream"] for record in told] == [False] * (len(told) - 1) + [True]
            assert [record.get("finish_reason") for record in told] == [None] * (len(told) - 1) + ["length"]
            assert sum(record.get("out_token", 0) for record in told) == 3
        async with http.post("/api/v1/text-completion", json=request) as response:
            whole = await response.json()
    assert whole["response"] == f"begin {text} end"


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_a_dialog(text: str) -> None:
    arguments = json.dumps({"text": text}, ensure_ascii=False)
    dialog = (
        AgentResponse("action", "see", True, message_id="a", tool="see", arguments=arguments, call_id="a"),
        AgentResponse("observation", text, True, message_id="o", tool="see", call_id="a"),
        AgentResponse("answer", text, message_id=DIALOG[-1].message_id),
        DIALOG[-1],
    )
    async with open_agent(ScriptedAgent(dialog)) as it:
        for told in (
            await events(it.http, "/api/v1/agent", {"question": "q"}),
            await frames(it.http, "agent", {"question": "q"}),
        ):
            assert "".join(record.get("arguments", "") for record in told) == arguments
            for kind in ("observation", "answer"):
                assert "".join(record["content"] for record in told if record["chunk_type"] == kind) == text
            assert sum(record["end_of_message"] for record in told) == 3
            assert [record["end_of_dialog"] for record in told] == [False] * (len(told) - 1) + [True]
        async with it.http.post("/api/v1/agent", json={"question": "q"}) as response:
            whole = await response.json()
        assert (whole["content"], whole["end_of_dialog"]) == (text, True)
        async with TgClient(it.gateway.url) as client, client.flow().agent_stream("q") as stream:
            told_events = [event async for event in stream]
        assert stream.trace.answer == text
    (action,) = [event for event in told_events if isinstance(event, Action)]
    assert (action.tool, action.arguments, action.complete) == ("see", {"text": text}, True)


async def test_the_command_shows_a_long_action_once() -> None:
    text = "x" * 200_000
    action = AgentResponse(
        "action", "see", True, message_id="a", tool="see", arguments=json.dumps({"text": text}), call_id="a"
    )
    async with open_agent(ScriptedAgent((action, *DIALOG[-3:]))) as it:
        done = await ran("tg-invoke-agent", "q", "-v", "-u", it.gateway.url)
    assert (done.code, done.out, done.err) == (0, "It is 5.\n", f'→ see {{"text":"{text}"}}\n')
