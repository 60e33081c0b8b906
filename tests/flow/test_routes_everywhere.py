"""A route behind every door, and under prompts and agents: one name, and the answer says which model gave it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.route_world import opened
from tests.flow.routed_models import BOTH, RoutedLlm, Served, serving
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.config import AgentConfig, RouteConfig
from tg_base.runtime import MAX_READ_HERE_OBJECTS
from tg_base.telemetry import LOAD_RESPONSE_HEADER
from tg_flow.agent.core import AgentModel, AgentPrompts
from tg_flow.agent.core.calling import NativeCalling
from tg_gateway.http import make_load_headers
from tg_schema.errors import RateLimited, Unavailable
from tg_serve.launcher import inspect
from tg_serve.options import ServeOptions

TURNS = [{"role": "user", "content": "hello"}]
MANY = [{"role": "user", "content": "hello"}] * (MAX_READ_HERE_OBJECTS + 1)
"""Read in another process."""
BODIES: dict[str, Any] = {
    "/api/v1/text-completion": {"prompt": "hello"},
    "/api/v1/flow/default/service/text-completion": {"prompt": "hello"},
    "/v1/chat/completions": {"model": "r", "messages": TURNS},
    "/v1/completions": {"model": "r", "prompt": "hello"},
    "/v1/responses": {"model": "nick", "input": "hello"},
    "/v1/messages": {"model": "r", "max_tokens": 9, "messages": TURNS},
    "/api/chat": {"model": "r", "messages": TURNS},
}


def names_of(text: str) -> set[str]:
    """All models that an answer names."""
    found, pending = set(), [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if "{" in line]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            found |= {each["model"]} if isinstance(each.get("model"), str) else set()
        pending += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return found


@pytest.mark.parametrize("streaming", [False, True])
async def test_each_door_gets_the_answer_of_the_model_that_works(tmp_path: Path, streaming: bool) -> None:
    async with serving(tmp_path) as it:
        RoutedLlm.errors["a"] = RateLimited("later")
        for path, body in BODIES.items():
            native = "streaming" if path.startswith("/api/v1") else "stream"
            text = await it.post(path, body | {native: streaming})
            assert "b" in names_of(text), text
            if path not in {"/v1/responses", "/v1/messages", "/api/chat"}:
                assert names_of(text) == {"b"}, text
        lines = [line for line in it.lines("gateway.request") if line["service"] == "text-completion"]
        assert [line["model"] for line in lines] == ["b"] * len(BODIES)
        # Then it rested, after the failures that make it.
        assert RoutedLlm.asked.count("a") == 3
        assert RoutedLlm.tried == {"a": 1, "b": 3}


async def test_a_body_that_another_process_reads(tmp_path: Path) -> None:
    async with serving(tmp_path) as it:
        RoutedLlm.errors["a"] = Unavailable("dead")
        text = await it.post("/v1/chat/completions", {"model": "r", "messages": MANY})
        assert (names_of(text), RoutedLlm.asked) == ({"b"}, ["a", "b"])


async def test_prompts_and_agents(tmp_path: Path) -> None:
    async with serving(tmp_path) as it:
        RoutedLlm.errors["a"] = Unavailable("dead")
        said = await it.post("/api/v1/prompt", {"id": "say", "variables": {"word": "hello"}})
        assert json.loads(said)["text"] == "Final Answer: b"
        told = await it.post("/api/v1/agent", {"question": "why?"})
        assert json.loads(told)["content"] == "b", told
        assert len(it.lines("route.fallback")) == 2


async def test_lists_say_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as it:
        RoutedLlm.errors["a"] = RateLimited("later", retry_after=500)
        await it.post("/v1/chat/completions", {"model": "r", "messages": TURNS})
        listed = {row["model"]: row for row in (await it.get("/api/v1/models"))["models"]}
        assert list(listed) == ["a", "b", "r", "nick"]
        states = [(each["model"], each["state"], each.get("reason")) for each in listed["r"]["route"]]
        assert states == [("a", "cooling", "rate-limited"), ("b", "ready", None)]
        assert listed["nick"]["alias_of"] == "r"
        shown = await it.get("/v1/models/r")
        assert [each["state"] for each in shown["route"]] == ["cooling", "ready"]
        assert "r" in {each["id"] for each in (await it.get("/v1/models"))["data"]}


async def said_by(it: Served) -> list[str]:
    """Who answers a gateway's request, a prompt and an agent."""
    await it.post("/v1/chat/completions", {"model": "r", "messages": TURNS})
    await it.post("/api/v1/prompt", {"id": "say", "variables": {"word": "hello"}})
    await it.post("/api/v1/agent", {"question": "why?"})
    asked = list(RoutedLlm.asked)
    RoutedLlm.asked.clear()
    return asked


async def test_an_edit_takes_effect_everywhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as it, asyncio.timeout(60):
        assert await said_by(it) == ["a"] * 3
        it.edit('r.models = ["b", "a"]\n')
        await until(lambda: it.lines("config.in_force"))
        assert it.lines("config.in_force")[0]["keys"] == ["routes.r.models"]
        assert await said_by(it) == ["b"] * 3
        it.edit('r.models = ["s"]\ns.models = ["r"]\n')
        await until(lambda: it.lines("config.refused"))
        assert "lead to each other in a circle" in it.lines("config.refused")[0]["reason"]
        assert await said_by(it) == ["b"] * 3
        it.edit(BOTH)
        await until(lambda: it.lines("config.recovered"))
        assert await said_by(it) == ["a"] * 3


async def test_an_edit_warns_of_a_feature_that_a_fallback_lacks(tmp_path: Path) -> None:
    async with serving(tmp_path) as it:
        lacking = it.file.read_text().replace("[flows]\n", '[models.b.options]\nwithout = ["tools"]\n[flows]\n')
        it.file.write_text(lacking.replace(BOTH, 'r.models = ["a"]\n'))
        await until(lambda: it.lines("config.in_force"))
        assert it.lines("route.lacks") == []
        it.file.write_text(lacking)
        await until(lambda: len(it.lines("config.in_force")) == 2)
        assert [(line["route"], line["model"], line["lacks"]) for line in it.lines("route.lacks")] == [
            ("r", "b", ["tools"])
        ]


async def test_a_check_warns_of_a_feature_that_a_model_lacks(tmp_path: Path) -> None:
    async with serving(tmp_path) as it:
        text = it.file.read_text().replace("[flows]\n", '[models.b.options]\nwithout = ["tools"]\n[flows]\n')
        it.file.write_text(text.replace("port = 0", "port = 0\nauth = 'off'"))
        assert (await inspect(ServeOptions(file=it.file)))[1] == []
        await until(lambda: it.lines("route.lacks"))
        line = it.lines("route.lacks")[0]
        assert (line["route"], line["model"], line["lacks"]) == ("r", "b", ["tools"])
        assert "tg.toml, line " in line["at"]


A_THEN_B = RouteConfig(models=("a", "b"))


@in_virtual_time
async def test_an_agent_calls_tools_as_the_live_model_can() -> None:
    async with opened(absent="a", r=A_THEN_B) as it:
        model = AgentModel(it.requestor, it.client(), AgentConfig(), AgentPrompts.of(it.config))
        assert isinstance(await model.calling(), NativeCalling)


@in_virtual_time
async def test_the_load_is_that_of_the_live_model() -> None:
    async with opened(absent="a", r=A_THEN_B) as it:
        queue = it.queue("b")
        it.models["b"].silent = True
        asking = asyncio.create_task(it.ask())
        await until(lambda: it.requestor.presence.serving(queue)[0].in_flight == 1)
        entry = it.requestor.routes.named["r"].entry
        assert "num_requests_running=1" in make_load_headers(it.requestor, "text", entry)[LOAD_RESPONSE_HEADER]
        asking.cancel()
