"""Agents through the SDK: typed events, the trace, both ways in, the blocking twin."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import pytest
from typing_extensions import override

from tests.fakes.scripted_agent import ACTION, AGAIN, DIALOG, FINAL, OBSERVATION, THOUGHT, ScriptedAgent
from tests.fakes.socket_wire import SocketWire
from tests.flow.open_agent import OpenedAgent, open_agent
from tests.within import within
from tg_client import (
    Action,
    AgentEvent,
    AgentStep,
    AgentTrace,
    Answer,
    Flow,
    Observation,
    SyncTgClient,
    TgClient,
    Thought,
)
from tg_client.transport import Address, Deadline, HttpConnections, HttpResponse, HttpTransport, Position
from tg_schema import AGENT, AgentRequest, AgentResponse
from tg_schema.errors import BadRequest, IncompleteStream, NotFound, RateLimited

ARGUMENTS = {"numbers": [2, 3], "note": "n"}
TRACE = AgentTrace(
    (
        Thought("I must add.", THOUGHT),
        Action("sum", ACTION, tool="sum", arguments=ARGUMENTS, call_id="a"),
        Observation("5.0", OBSERVATION, tool="sum", call_id="a"),
        Thought("Done.", AGAIN),
        Answer("It is 5.", FINAL, final=True, finish_reason="stop"),
    ),
    40,
    9,
    "scripted",
    "stop",
)


@pytest.fixture
async def it() -> AsyncIterator[OpenedAgent]:
    async with open_agent() as opened:
        yield opened


@asynccontextmanager
async def flow_of(it: OpenedAgent, door: str) -> AsyncIterator[Flow]:
    async with TgClient(it.gateway.url) as client:
        if door == "rest":
            yield client.flow()
        else:
            async with client.socket() as socket:
                yield socket.flow()


@pytest.fixture(params=["rest", "socket"])
async def flow(request: pytest.FixtureRequest, it: OpenedAgent) -> AsyncIterator[Flow]:
    async with flow_of(it, request.param) as flow:
        yield flow


async def test_each_event_comes_before_the_next_is_made(flow: Flow, it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(0)
    async with flow.agent_stream("2 + 3?") as events:
        for number, record in enumerate(DIALOG, 1):
            it.agent.step.release()
            event = await anext(events)
            assert type(event).__name__.lower() == record.chunk_type
            assert (event.content, event.message_id) == (record.content, record.message_id)
            assert (event.complete, it.agent.said) == (record.end_of_message, number)
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert events.trace == TRACE
    assert it.agent.requests == [AgentRequest("2 + 3?", streaming=True)]


async def test_the_whole_dialog(flow: Flow, it: OpenedAgent) -> None:
    step = AgentStep("t", "sum", {"a": "1"}, "1")
    trace = await flow.agent("2 + 3?", group=["maths", "x"], state="begun", history=[step], pattern="react")
    assert trace == TRACE
    assert trace.answer == "It is 5."
    asked = AgentRequest("2 + 3?", "begun", ("maths", "x"), (step,), streaming=True, pattern="react")
    assert it.agent.requests == [asked]


async def test_a_trace_goes_on_as_history(flow: Flow, it: OpenedAgent) -> None:
    trace = await flow.agent("2 + 3?")
    assert trace.steps == (AgentStep("I must add.", "sum", {"numbers": "[2,3]", "note": "n"}, "5.0"),)
    await flow.agent("and 4?", history=trace.steps)
    assert it.agent.requests[-1].history == trace.steps


@pytest.mark.parametrize("read", range(len(DIALOG) - 1))
async def test_leaving_early_stops_the_agent(flow: Flow, it: OpenedAgent, read: int) -> None:
    it.agent.step = asyncio.Semaphore(0)
    async with flow.agent_stream("q") as events:
        await it.agent.started.wait()
        for _ in range(read):
            it.agent.step.release()
            await anext(events)
    await within(1, it.agent.stopped.wait())
    assert it.agent.said == read


async def test_a_dialog_is_iterated_without_being_entered(flow: Flow, it: OpenedAgent) -> None:
    """As the specification's `agent_stream`, an async generator."""
    dialog = flow.agent_stream("2 + 3?", group=["maths"])
    assert "".join([event.content async for event in dialog if isinstance(event, Answer)]) == "It is 5."
    assert dialog.trace == TRACE
    assert it.agent.requests == [AgentRequest("2 + 3?", group=("maths",), streaming=True)]


async def test_a_break_out_of_an_iterated_dialog_stops_the_agent(flow: Flow, it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(1)
    dialog = flow.agent_stream("q")
    async for event in dialog:
        assert event.content == "I must "
        break
    await asyncio.wait_for(it.agent.stopped.wait(), 30)
    assert it.agent.said == 1
    assert dialog.trace.messages == (Thought("I must ", THOUGHT, complete=False),)


async def test_a_dialog_is_begun_once(flow: Flow, it: OpenedAgent) -> None:
    dialog = flow.agent_stream("q")
    async with dialog as events:
        await anext(events)
        with pytest.raises(BadRequest, match="call agent_stream again"):
            async for _ in dialog:
                pass
    with pytest.raises(BadRequest, match="call agent_stream again"):
        await dialog.__aenter__()
    assert len(it.agent.requests) == 1


async def test_an_interrupt_in_the_moment_that_the_answer_begins_leaves_nothing_open(it: OpenedAgent) -> None:
    it.agent.step = asyncio.Semaphore(1)

    class Interrupted(HttpConnections):
        @override
        async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
            response = await super().ask(method, url, headers, body)
            asking.cancel()
            return response

    address = Address.of(it.gateway.url)

    async def ask(connections: HttpConnections) -> None:
        door = HttpTransport(address, connections, 5.0)
        asked = AgentRequest("q", streaming=True)
        async with door.stream("default", AGENT, asked, Deadline(5.0), Position()) as records:
            await anext(records)

    async with aclosing(Interrupted(address.base, {})) as connections:
        asking = asyncio.create_task(ask(connections))
        with pytest.raises(asyncio.CancelledError):
            await asking
        await within(1, it.agent.stopped.wait())
        gc.collect()


@pytest.mark.parametrize("door", ["rest", "socket"])
async def test_a_failure_keeps_what_came(door: str) -> None:
    error = RateLimited("the provider is busy", retry_after=3.0)
    async with open_agent(ScriptedAgent(DIALOG[:4], error)) as it, flow_of(it, door) as flow:
        async with flow.agent_stream("q") as events:
            with pytest.raises(RateLimited, match="the provider is busy"):
                async for _ in events:
                    pass
        assert events.trace.messages == (*TRACE.messages[:2], replaced(TRACE.messages[2]))
        assert (events.trace.answer, events.trace.in_token) == ("", None)
        with pytest.raises(RateLimited):
            await flow.agent("q")


def replaced(event: AgentEvent) -> AgentEvent:
    """The observation, of which only the first piece came."""
    assert isinstance(event, Observation)
    return Observation("5", event.message_id, complete=False, tool=event.tool, call_id=event.call_id)


async def test_what_is_wrong_is_said(flow: Flow) -> None:
    with pytest.raises(BadRequest, match="question is missing"):
        await flow.agent(" ")
    with pytest.raises(BadRequest, match="not Unicode"):
        await flow.agent("\ud800")
    with pytest.raises(NotFound, match="this flow has no service 'prompt'; it has: agent"):
        await flow.prompt("text")


async def test_sub_agents_and_calls_side_by_side() -> None:
    def said(kind: str, content: str, message: str, end: bool = True, **more: object) -> AgentResponse:
        return AgentResponse(kind, content, end, message_id=message, **more)  # type: ignore[arg-type]

    dialog = (
        said("thought", "Ask both.", "t"),
        said("action", "x", "ax", tool="x", call_id="1", arguments="{}"),
        said("action", "y", "ay", tool="y", call_id="2", arguments="no json"),
        said("thought", "I ", "sub", False, path=("y",)),
        said("observation", "X", "ox", False, tool="x", call_id="1"),
        said("thought", "am y.", "sub", path=("y",)),
        said("answer", "Y!", "suba", path=("y",)),
        said("observation", "Y", "oy", tool="y", call_id="2"),
        said("observation", "X", "ox", tool="x", call_id="1"),
        AgentResponse("answer", "XXY", True, True, message_id="f", in_token=0),
    )
    async with open_agent(ScriptedAgent(dialog)) as it, flow_of(it, "socket") as flow:
        trace = await flow.agent("q")
    assert [(event.path, event.content) for event in trace.messages] == [
        ((), "Ask both."),
        ((), "x"),
        ((), "y"),
        (("y",), "I am y."),
        ((), "XX"),
        (("y",), "Y!"),
        ((), "Y"),
        ((), "XXY"),
    ]
    assert trace.messages[2] == Action("y", "ay", tool="y", arguments="no json", call_id="2")
    assert (trace.answer, trace.in_token, trace.out_token) == ("XXY", 0, None)
    assert trace.steps == (AgentStep("Ask both.", "x", {}, "XX"), AgentStep(None, "y", {}, "Y"))


async def test_an_answer_that_is_withdrawn() -> None:
    dialog = (
        AgentResponse("answer", "It is", message_id="1"),
        AgentResponse("answer", " 4.", True, message_id="1"),
        AgentResponse("answer", "It is 5.", message_id="2"),
        AgentResponse("answer", "", True, True, message_id="2"),
    )
    async with open_agent(ScriptedAgent(dialog)) as it, flow_of(it, "rest") as flow:
        trace = await flow.agent("q")
    assert trace.messages == (Answer("It is 4.", "1"), Answer("It is 5.", "2", final=True))
    assert trace.answer == "It is 5."


async def test_what_was_withdrawn_is_the_thought_of_the_call_after_it() -> None:
    """The model goes on from a client's history as it does from the turns of its own dialog."""
    dialog = (
        AgentResponse("thought", "Hm.", True, message_id="0"),
        AgentResponse("answer", "I must ", message_id="1"),
        AgentResponse("answer", "add.", True, message_id="1"),
        *DIALOG[2:5],
        *DIALOG[-3:],
    )
    async with open_agent(ScriptedAgent(dialog)) as it, flow_of(it, "rest") as flow:
        trace = await flow.agent("q")
    assert [(step.thought, step.action, step.observation) for step in trace.steps] == [
        ("Hm.\nI must add.", "sum", "5.0")
    ]


async def test_what_another_peer_adds_is_passed_over() -> None:
    frames = [
        '{"id":"ID","response":{"message_type":"explain","end_of_message":false,"end_of_dialog":false},"complete":false}',
        '{"id":"ID","response":{"chunk_type":"answer","content":"a"},"complete":false}',
        '{"id":"ID","response":{"chunk_type":"answer","end_of_dialog":true},"complete":true}',
    ]
    async with SocketWire(frames).listening() as url, TgClient(url) as client, client.socket() as socket:
        assert (await socket.flow().agent("q")).messages == (Answer("a", final=True),)
    async with (
        SocketWire(frames[:2]).listening() as url,
        TgClient(url, timeout=5) as client,
        client.socket() as socket,
        socket.flow().agent_stream("q") as events,
    ):
        assert await anext(events) == Answer("a", complete=False)
        assert events.trace.messages == (Answer("a", complete=False),)


async def test_a_dialog_that_breaks_off() -> None:
    frames = ['{"id":"ID","response":{"chunk_type":"answer","content":"a","end_of_message":true},"complete":true}']
    async with SocketWire(frames).listening() as url, TgClient(url) as client, client.socket() as socket:
        with pytest.raises(IncompleteStream):
            await socket.flow().agent("q")


@pytest.mark.parametrize("door", ["rest", "socket"])
async def test_the_blocking_twin(it: OpenedAgent, door: str) -> None:
    def work() -> None:
        with SyncTgClient(it.gateway.url) as client, client.socket() as socket:
            flow = client.flow() if door == "rest" else socket.flow()
            assert flow.agent("2 + 3?") == TRACE
            with flow.agent_stream("2 + 3?", group=["maths"]) as events:
                answer = "".join(event.content for event in events if isinstance(event, Answer))
            assert answer == "It is 5."
            assert events.trace == TRACE
            dialog = flow.agent_stream("2 + 3?")
            assert "".join(event.content for event in dialog if isinstance(event, Answer)) == "It is 5."
            assert dialog.trace == TRACE
            with pytest.raises(BadRequest), flow.agent_stream("") as events:
                list(events)

    await asyncio.to_thread(work)


@pytest.mark.parametrize("entered", [True, False])
async def test_the_blocking_twin_leaves_early(it: OpenedAgent, *, entered: bool) -> None:
    it.agent.step = asyncio.Semaphore(1)

    def work() -> str:
        with SyncTgClient(it.gateway.url) as client:
            if entered:
                with client.flow().agent_stream("q") as events:
                    return next(events).content
            return next(event.content for event in client.flow().agent_stream("q"))

    assert await asyncio.to_thread(work) == "I must "
    await within(1, it.agent.stopped.wait())
    assert it.agent.said == 1
