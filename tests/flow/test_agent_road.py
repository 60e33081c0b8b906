"""The whole road of an agent: a client, the gateway, the agent service, its model and its tools, and who stops whom."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.fakes import tools
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, LIVELY, TOPICS, pipeline
from tests.flow.agent_turns import DONE, call
from tests.flow.command import ended, ran, started
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT
from tests.flow.raw_http import raw_connection
from tests.flow.test_agent_faults import SUPERVISED, TOOLS
from tests.until import AT_ONCE_SECONDS, until
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_client import Action, Answer, Observation, SyncTgClient, TgClient, Thought
from tg_gateway.app import Gateway
from tg_schema import AGENT, COMMON_FEATURES, ToolCallDelta
from tg_schema.errors import ProtocolError

ROUTE = Route("default", AGENT, TOPICS.request("default", AGENT.name), TOPICS.response("default", AGENT.name), False)
ASK = {"question": "q", "streaming": True}


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    tools.seen.clear()


@asynccontextmanager
async def road(llm: TurnsLlm, folder: Path, config: str = BASE + TOOLS, **models: TurnsLlm) -> AsyncIterator[str]:
    """The URL of a gateway before a pipeline with an agent."""
    async with (
        pipeline(llm, folder, config, models=models) as it,
        Requestor(it.bus, CONFIG.topics, timing=LIVELY) as requestor,
        Gateway(ON_ANY_PORT, requestor, (ROUTE,)) as gateway,
    ):
        yield gateway.url


async def stopped() -> None:
    """The tool that hangs was stopped."""
    async with asyncio.timeout(AT_ONCE_SECONDS):
        await until(lambda: tools.seen == ["started", "stopped"])


async def test_a_connection_that_is_closed_stops_the_tool(tmp_path: Path) -> None:
    async with road(TurnsLlm(call("hang"), DONE), tmp_path) as url:
        async with raw_connection(("127.0.0.1", int(url.rsplit(":", 1)[1].strip("/")))) as raw:
            raw.post("/api/v1/agent", json.dumps(ASK).encode())
            await raw.until(b'"chunk_type":"action"')
            await until(lambda: "started" in tools.seen)
        await stopped()


async def test_a_cancel_on_a_socket_stops_the_tool(tmp_path: Path) -> None:
    async with (
        road(TurnsLlm(call("hang"), DONE), tmp_path) as url,
        aiohttp.ClientSession(url) as session,
        session.ws_connect("/api/v1/socket") as socket,
    ):
        await socket.send_json({"id": 1, "service": "agent", "request": ASK})
        await until(lambda: "started" in tools.seen)
        await socket.send_json({"id": 1, "cancel": True})
        await stopped()
        frame = await socket.receive_json(timeout=5)
        while not frame["complete"]:
            frame = await socket.receive_json(timeout=5)
        assert frame["error"]["type"] == "cancelled"


@pytest.mark.parametrize("door", ["rest", "socket"])
@pytest.mark.parametrize("kind", [Thought, Action])
async def test_leaving_the_sdk_stops_the_tool(tmp_path: Path, door: str, kind: type) -> None:
    async with (
        road(TurnsLlm(call("hang"), DONE), tmp_path) as url,
        TgClient(url, retries=0) as client,
        client.socket() as socket,
    ):
        flow = client.flow() if door == "rest" else socket.flow()
        async with flow.agent_stream("q") as events:
            await until(lambda: "started" in tools.seen)
            async for event in events:
                if isinstance(event, kind):
                    break
        await stopped()


async def test_an_interrupted_command_stops_the_tool(tmp_path: Path) -> None:
    async with (
        road(TurnsLlm(call("hang"), DONE), tmp_path) as url,
        started("tg-invoke-agent", "q", "-v", "-u", url) as process,
    ):
        assert process.stderr is not None
        await asyncio.wait_for(process.stderr.readuntil(b"hang {}\n"), 20)
        await until(lambda: "started" in tools.seen)
        process.send_signal(signal.SIGINT)
        await stopped()
        done = await ended(process)
    assert (done.code, done.out) == (130, "")


async def test_leaving_in_a_sub_agents_tool_stops_it(tmp_path: Path) -> None:
    lead, below = TurnsLlm(call("below", question="?")), TurnsLlm(call("hang"))
    async with road(lead, tmp_path, SUPERVISED + TOOLS, below=below) as url, TgClient(url, retries=0) as client:
        async with client.flow().agent_stream("q") as events:
            async for event in events:
                if isinstance(event, Action) and event.path:
                    break
            await until(lambda: "started" in tools.seen)
        await stopped()


async def test_sub_agents_are_told_apart(tmp_path: Path) -> None:
    lead = TurnsLlm(call("below", question="2 + 1?"), ("Final Answer: it is 3",))
    below = TurnsLlm(call("add", a=2), ("Thought: ", "easy\n", "Final Answer: ", "three"))
    async with road(lead, tmp_path, SUPERVISED + TOOLS, below=below) as url, TgClient(url, retries=0) as client:
        trace = await client.flow().agent("2 + 1?")
        said = [(type(message), message.path, message.content) for message in trace.messages]
        done = await ran("tg-invoke-agent", "2 + 1?", "-v", "-u", url)
    assert (Thought, ("below",), "easy") in said
    assert [entry for entry in said if entry[0] is Observation and not entry[1]] == [(Observation, (), "three")]
    assert said[-1] == (Answer, (), "it is 3")
    assert [(step.action, step.observation) for step in trace.steps] == [("below", "three")]
    assert done.code == 0


async def test_a_dialog_that_leads_nowhere_fails_at_every_door(tmp_path: Path) -> None:
    wrong = call("nope")
    async with road(TurnsLlm(*(wrong, wrong) * 3), tmp_path) as url, TgClient(url, retries=0) as client:
        async with client.flow().agent_stream("q") as events:
            with pytest.raises(ProtocolError, match="the model makes no valid tool call"):
                async for _ in events:
                    pass
        assert [message.content for message in events.trace.messages if isinstance(message, Observation)] == [
            'error: there is no tool "nope" now; there are: add, hang, block'
        ] * 2
        done = await ran("tg-invoke-agent", "q", "-u", url)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("tg-invoke-agent: the model makes no valid tool call")
        assert done.err.count("\n") == 1


async def test_the_blocking_twin(tmp_path: Path) -> None:
    def work(url: str) -> str:
        with SyncTgClient(url, retries=0) as client, client.flow().agent_stream("q") as events:
            return "".join(event.content for event in events if isinstance(event, Answer))

    async with road(TurnsLlm(call("add", a=1), ("Final Answer: ", "1 + 1 ", "= 2")), tmp_path) as url:
        assert await asyncio.to_thread(work, url) == "1 + 1 = 2"


@pytest.mark.parametrize("before", ["I must add.", "x" * 300])
async def test_a_pipe_gets_the_answer_alone_of_a_model_that_first_says_what_it_will_do(
    tmp_path: Path, before: str
) -> None:
    llm = TurnsLlm((before, ToolCallDelta(0, "c", "add", '{"a": 2}')), ("It is 3.",), features=COMMON_FEATURES)
    async with road(llm, tmp_path) as url:
        done = await ran("tg-invoke-agent", "q", "-u", url)
    assert (done.code, done.out, done.err) == (0, "It is 3.\n", "")


@pytest.mark.parametrize("before", ["I must add.", "x" * 300])
async def test_a_dialog_goes_on_from_the_steps_of_its_trace_as_from_its_own_turns(tmp_path: Path, before: str) -> None:
    llm = TurnsLlm((before, ToolCallDelta(0, "c", "add", '{"a": 2}')), ("It is 3.",), features=COMMON_FEATURES)
    async with road(llm, tmp_path) as url, TgClient(url, retries=0) as client:
        trace = await client.flow().agent("q")
        await client.flow().agent("q", history=trace.steps)
    own, kept = (request.messages for request in llm.requests[1:])
    assert [message.text for message in kept] == [message.text for message in own] == ["q", before, "3"]
