"""What goes wrong under an agent, and who leaves: models, tools, clients and processes; each ends typed, or goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes import tools
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, LIVELY, TOPICS, Pipeline, pipeline, tell
from tests.flow.agent_turns import DONE, call
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT
from tests.flow.serve_context import context_of
from tests.until import AT_ONCE_SECONDS, until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_client import Action, TgClient, Thought
from tg_flow.agent import AgentKind
from tg_gateway.app import Gateway
from tg_schema import AGENT, COMMON_FEATURES, AgentRequest, AgentStep, ToolCallDelta
from tg_schema.errors import Unavailable

TOOLS = """
[tools.add]
kind = "python"
options.function = "tests.fakes.tools:add"
[tools.hang]
kind = "python"
options.function = "tests.fakes.tools:hang"
timeout = 20
[tools.block]
kind = "python"
options.function = "tests.fakes.tools:block"
timeout = 0.1
"""


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    tools.seen.clear()
    tools.released.clear()


async def test_a_model_that_fails_in_mid_thought(tmp_path: Path) -> None:
    llm = TurnsLlm(("Thought: I th", "ink", Unavailable("the model is gone; ask again")))
    told = await tell(llm, tmp_path)
    assert told.messages == [("thought", "I think")]
    assert isinstance(told.error, Unavailable)
    assert told.error.message == "the model is gone; ask again"


async def test_a_model_that_fails_after_a_tool(tmp_path: Path) -> None:
    llm = TurnsLlm(call("add", a=1), ("Thought: x", Unavailable("gone")))
    told = await tell(llm, tmp_path, BASE + TOOLS, streaming=False)
    assert told.records == []
    assert isinstance(told.error, Unavailable)


async def test_a_tool_that_hangs_is_stopped_and_told(tmp_path: Path) -> None:
    config = BASE + TOOLS.replace("timeout = 20", "timeout = 0.1")
    told = await tell(TurnsLlm(call("hang"), DONE), tmp_path, config)
    assert ("observation", "error: no result within 0.1 s") in told.messages
    assert told.answer == "done"
    assert tools.seen == ["started", "stopped"]


async def test_a_function_that_blocks_its_thread_blocks_nothing_else(tmp_path: Path) -> None:
    try:
        told = await tell(TurnsLlm(call("block"), DONE), tmp_path, BASE + TOOLS)
    finally:
        tools.released.set()
    assert ("observation", "error: no result within 0.1 s") in told.messages
    assert told.answer == "done"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("cancels", "the tool was cancelled from within"),
        ("exits", "the tool failed"),
        ("exits_in_its_thread", "the tool failed"),
        ("stops", "the tool failed"),
    ],
)
async def test_a_tool_that_ends_in_a_strange_way(tmp_path: Path, tool: str, words: str) -> None:
    config = BASE + f'[tools.{tool}]\nkind = "python"\noptions.function = "tests.fakes.tools:{tool}"\n'
    told = await tell(TurnsLlm(call(tool), DONE), tmp_path, config)
    assert ("observation", f"error: {words}") in told.messages
    assert told.answer == "done"


async def test_more_calls_than_run_at_once(tmp_path: Path) -> None:
    many = "Thought: so\n" + 'Action: add\nAction Input: {"a": 1}\n' * 100
    told = await tell(TurnsLlm((many,), DONE), tmp_path, BASE + TOOLS)
    assert [content for kind, content in told.messages if kind == "observation"] == ["2"] * 100


async def test_a_very_long_observation_is_cut(tmp_path: Path) -> None:
    config = BASE + '[tools.long]\nkind = "python"\noptions.function = "tests.fakes.tools:long"\n'
    told = await tell(TurnsLlm(call("long"), DONE), tmp_path, config)
    (observation,) = [content for kind, content in told.messages if kind == "observation"]
    assert observation == "x" * 100_000 + "\n(the rest is left out; only 100000 characters are shown)"


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_in_a_thought_stops_the_model(tmp_path: Path, streaming: bool) -> None:
    llm = TurnsLlm(("Thought: a", asyncio.Event()))
    async with pipeline(llm, tmp_path) as it:
        async with it.clients["default"].stream(AgentRequest("q", streaming=streaming)):
            await until(lambda: llm.requests)
        await asyncio.wait_for(llm.stopped.wait(), 5)


SUPERVISED = """
[models.m]
provider = "none"
[flows.default]
text-completion = { model = "m" }
agent = { pattern = "supervisor", agents = ["below"], tools = [] }
[flows.below]
text-completion = { model = "m" }
agent = {}
"""


async def test_messages_of_a_sub_agent_that_fails_in_mid_thought_have_their_end(tmp_path: Path) -> None:
    lead = TurnsLlm(call("below", question="?"), DONE)
    below = TurnsLlm(("Thought: a", Unavailable("gone")))
    told = await tell(lead, tmp_path, SUPERVISED + TOOLS, models={"below": below})
    assert told.answer == "done"
    assert ("observation", "error: gone") in told.messages


@asynccontextmanager
async def mortals(
    llm: TurnsLlm, folder: Path, count: int
) -> AsyncIterator[tuple[Pipeline, list[MortalBus], Requestor]]:
    """One model, and some processes with the same agent."""
    file = folder / "tg.toml"
    file.write_text(BASE + TOOLS)
    async with AsyncExitStack() as stack:
        bus = MortalBus(memory := MemoryBus())
        stack.push_async_callback(memory.aclose)
        config_file = ConfigWatcher(file)
        (route,) = config_file.config.routes("text-completion")
        await stack.enter_async_context(Processor(bus, TOPICS, llm, (route,), grace=0.1, timing=LIVELY))
        requestor = await stack.enter_async_context(Requestor(bus, TOPICS, timing=LIVELY))
        processes = [MortalBus(bus) for _ in range(count)]
        for process in processes:
            await stack.enter_async_context(AgentKind().serve(context_of(config_file, process, LIVELY)))
        client = Client(requestor, config_file.config.routes("agent")[0])
        yield Pipeline(bus, {"default": client}), processes, requestor


async def test_a_process_that_dies_between_two_steps_is_one_error_and_the_dialog_can_go_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    llm = TurnsLlm(call("add", a=1), ("Thought: x", gate), ("Final Answer: done",))
    async with mortals(llm, tmp_path, 1) as (it, processes, requestor):
        asking = asyncio.create_task(it.tell())
        await until(lambda: len(llm.requests) == 2)
        processes[0].kill()
        told = await asyncio.wait_for(asking, 20)
        assert isinstance(told.error, Unavailable)
        assert "died in the middle" in told.error.message
        assert told.messages[:3] == [
            ("thought", "so"),
            ("action", '{"tool":"add","arguments":{"a":1}}'),
            ("observation", "2"),
        ]
        await until(lambda: llm.running == 0)
        async with AgentKind().serve(context_of(ConfigWatcher(tmp_path / "tg.toml"), it.bus, LIVELY)):
            await until(lambda: requestor.presence.serving(it.clients["default"].route.request))
            step = AgentStep("so", "add", {"a": "1"}, "2")
            assert (await it.tell(history=(step,))).answer == "done"


async def test_a_process_that_dies_before_the_first_record_is_not_noticed(tmp_path: Path) -> None:
    llm = TurnsLlm((asyncio.Event(),), DONE)
    async with mortals(llm, tmp_path, 2) as (it, processes, _):
        asking = asyncio.create_task(it.tell())
        await until(lambda: llm.requests)
        (busy,) = [process for process in processes if process.asked]
        busy.kill()
        told = await asyncio.wait_for(asking, 20)
        assert told.messages == [("answer", "done")]


ROUTE = Route("default", AGENT, TOPICS.request("default", AGENT.name), TOPICS.response("default", AGENT.name), False)


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
    await asyncio.wait_for(until(lambda: tools.seen == ["started", "stopped"]), AT_ONCE_SECONDS)


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


async def test_leaving_in_a_sub_agents_tool_stops_it(tmp_path: Path) -> None:
    lead, below = TurnsLlm(call("below", question="?")), TurnsLlm(call("hang"))
    async with road(lead, tmp_path, SUPERVISED + TOOLS, below=below) as url, TgClient(url, retries=0) as client:
        async with client.flow().agent_stream("q") as events:
            async for event in events:
                if isinstance(event, Action) and event.path:
                    break
            await until(lambda: "started" in tools.seen)
        await stopped()


@pytest.mark.parametrize("before", ["I must add.", "x" * 300])
async def test_a_dialog_goes_on_from_the_steps_of_its_trace_as_from_its_own_turns(tmp_path: Path, before: str) -> None:
    llm = TurnsLlm((before, ToolCallDelta(0, "c", "add", '{"a": 2}')), ("It is 3.",), features=COMMON_FEATURES)
    async with road(llm, tmp_path) as url, TgClient(url, retries=0) as client:
        trace = await client.flow().agent("q")
        await client.flow().agent("q", history=trace.steps)
    own, kept = (request.messages for request in llm.requests[1:])
    assert [message.text for message in kept] == [message.text for message in own] == ["q", before, "3"]
