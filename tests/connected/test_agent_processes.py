"""Agents as processes of their own over a real Apache Pulsar, and what the death of one between two steps does."""

import asyncio
import json
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import Pipeline
from tests.flow.command import started
from tests.pulsar_server import PulsarServer
from tests.until import until
from tg_base.bus import open_bus
from tg_base.client import Client, Requestor
from tg_base.config import read_config
from tg_base.server import Processor
from tg_schema import AgentRequest, AgentStep
from tg_schema.errors import Unavailable

pytestmark = pytest.mark.connected

ROOT = Path(__file__).parents[2]


def call(tool: str = "add", **arguments: object) -> tuple[str, ...]:
    return (f"Thought: I {tool}\nAction: {tool}\nAction Input: {json.dumps(arguments)}\n",)


@dataclass
class Agents:
    """The pipeline, and what starts another process with its agent."""

    llm: TurnsLlm
    it: Pipeline
    requestor: Requestor
    command: tuple[str, ...]
    stack: AsyncExitStack

    async def start(self) -> Process:
        """One more process, ready."""
        process = await self.stack.enter_async_context(started("tg-serve", *self.command, PYTHONPATH=str(ROOT)))
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert line.startswith("ready: agent ("), line
        return process

    def serving(self) -> int:
        """How many processes have announced themselves."""
        return len(self.requestor.presence.serving(next(iter(self.it.clients.values())).route.request))


@pytest.fixture
async def agents(pulsar: PulsarServer, tmp_path: Path) -> AsyncIterator[Agents]:
    async with opened(pulsar.service_url, tmp_path) as it:
        yield it


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Agents]:
    flow = f"f-{uuid.uuid4().hex[:8]}"
    file = folder / "tokengrid.toml"
    file.write_text(
        f"""
        [models.m]
        provider = "none"
        [flows.{flow}]
        text-completion = {{ model = "m" }}
        agent = {{}}
        [tools.add]
        kind = "python"
        options.function = "tests.fakes.tools:add"
        [tools.crash]
        kind = "python"
        options.function = "tests.fakes.tools:crash"
        [tools.hang]
        kind = "python"
        options.function = "tests.fakes.tools:hang"
        timeout = 0.2
        [tools.note]
        kind = "python"
        options.function = "tests.fakes.tools:note"
        timeout = 60
        """,
        "utf-8",
    )
    config = read_config(file)
    llm = TurnsLlm(("",))
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus(url))
        await stack.enter_async_context(Processor(bus, config.topics, llm, config.routes("text-completion"), grace=0.1))
        requestor = await stack.enter_async_context(Requestor(bus, config.topics))
        it = Pipeline(bus, {"default": Client(requestor, config.routes("agent")[0])})
        command = ("--config", str(file), "--bus", url, "--log-level", "warning", "--only", "agent")
        yield Agents(llm, it, requestor, command, stack)


async def test_a_dialog_and_a_client_that_leaves(agents: Agents) -> None:
    await agents.start()
    agents.llm.turns = (call(a=2, b=3), ("Final Answer: It ", "is 5."), ("Thought: x", asyncio.Event()))
    told = await agents.it.tell("How much is 2 + 3?")
    assert told.messages == [
        ("thought", "I add"),
        ("action", '{"tool":"add","arguments":{"a":2,"b":3}}'),
        ("observation", "5"),
        ("answer", "It is 5."),
    ]
    async with agents.it.clients["default"].stream(AgentRequest("q", streaming=True)) as records:
        assert (await anext(records)).content == "x"
    await until(lambda: agents.llm.running == 0)


async def test_faults_of_tools_models_and_clients(agents: Agents, tmp_path: Path) -> None:
    await agents.start()
    agents.llm.turns = (call("crash"), call("hang"), ("Final Answer: done",))
    told = await agents.it.tell()
    assert told.answer == "done"
    assert [content for kind, content in told.messages if kind == "observation"] == [
        "error: the tool failed",
        "error: no result within 0.2 s",
    ]
    agents.llm.requests.clear()
    agents.llm.turns = (("Thought: I th", "ink", Unavailable("gone")),)
    told = await agents.it.tell()
    assert told.messages == [("thought", "I think")]
    assert isinstance(told.error, Unavailable)
    agents.llm.requests.clear()
    file = tmp_path / "noted"
    agents.llm.turns = (call("note", file=str(file)),)
    async with agents.it.clients["default"].stream(AgentRequest("q", streaming=True)):
        await until(file.exists)
    await until(lambda: file.read_text() == "stopped")


async def test_a_process_killed_between_two_steps(agents: Agents) -> None:
    process = await agents.start()
    agents.llm.turns = (call(a=1), ("Thought: x", asyncio.Event()), ("Final Answer: done",))
    asking = asyncio.create_task(agents.it.tell())
    await until(lambda: len(agents.llm.requests) == 2)
    process.kill()
    told = await asyncio.wait_for(asking, 15)
    assert isinstance(told.error, Unavailable)
    assert ("observation", "2") in told.messages
    await agents.start()
    await until(agents.serving)
    step = AgentStep("I add", "add", {"a": "1"}, "2")
    assert (await agents.it.tell(history=(step,))).answer == "done"


async def test_a_process_killed_before_the_first_record(agents: Agents) -> None:
    first = await agents.start()
    agents.llm.turns = ((asyncio.Event(),), ("Final Answer: done",))
    asking = asyncio.create_task(agents.it.tell())
    await until(lambda: agents.llm.requests)
    await agents.start()
    first.kill()
    told = await asyncio.wait_for(asking, 30)
    assert told.messages == [("answer", "done")]
