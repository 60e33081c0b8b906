"""The bounds of an answer, in bytes and in time, in every place that gathers one; and long pieces, which are whole."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes import tools
from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.endless_llm import CALLS, THOUGHTS, WORDS, EndlessLlm
from tests.fakes.gateway_wire import EVENTS, bytes_of, chunk, gateway_wire
from tests.fakes.scripted_agent import DIALOG, ScriptedAgent
from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.fakes.typed_clients import LlmClient
from tests.flow.agent_dialog import BASE, pipeline, tell
from tests.flow.command import ran
from tests.flow.open_agent import open_agent
from tests.flow.open_gateway import TEXTS, open_gateway
from tests.flow.patient_timing import PatientTiming
from tests.flow.test_prompt_service import CONFIG as PROMPTS_CONFIG
from tests.flow.test_prompt_service import TOPICS
from tests.flow.test_prompt_service import pipeline as prompt_pipeline
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import Config, GatewayConfig, TextCompletionConfig
from tg_base.llm import LlmChunk
from tg_base.server import Processor
from tg_client import Action, TgClient
from tg_flow.agent.core.answer_text import AnswerText
from tg_schema import (
    COMMON_FEATURES,
    AgentRequest,
    AgentResponse,
    TextCompletionRequest,
    TextCompletionResponse,
    ToolCallDelta,
)
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import Timeout, TooLarge

COMPLETION = "/api/v1/text-completion"
SECONDS = 1.5
"""The timeout of these tests."""
STEP = 0.25
"""Seconds between two signs of life: a slow machine may be late with one of them."""
STEPS = 8
"""So that all of them take longer than the timeout."""


async def pace(step: asyncio.Semaphore) -> None:
    for _ in range(STEPS):
        await asyncio.sleep(STEP)
        step.release()


@in_virtual_time
async def test_a_stream_in_flow_is_not_cut() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=SECONDS)) as it:
        it.llm.step = asyncio.Semaphore(0)
        told, _ = await asyncio.gather(events(it.http, COMPLETION, {"prompt": str(STEPS)}), pace(it.llm.step))
    assert "".join(str(event["response"]) for event in told) == "".join(f"{number} " for number in range(STEPS))
    assert told[-1]["end_of_stream"] is True


@in_virtual_time
async def test_silence_ends_a_stream() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=0.3)) as it:
        it.llm.step = asyncio.Semaphore(1)
        told = await events(it.http, COMPLETION, {"prompt": "2"})
        await asyncio.wait_for(it.llm.stopped.wait(), 5)
    assert told[0]["response"] == "0 "
    assert "nothing more of the answer came within 0.3 s" in str(told[-1])


@in_virtual_time
async def test_a_first_record_that_does_not_come() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=0.3)) as it:
        it.llm.step = asyncio.Semaphore(0)
        async with it.http.post(COMPLETION, json={"prompt": "2", "streaming": True}) as response:
            answer = await response.text()
        await asyncio.wait_for(it.llm.stopped.wait(), 5)
    assert "no answer came within 0.3 s" in answer


@in_virtual_time
async def test_a_whole_answer_in_the_making_is_not_cut() -> None:
    """Its processor says that it works."""
    config = GatewayConfig(port=0, request_timeout=SECONDS)
    async with open_gateway(config, timing=PatientTiming(interval=0.1)) as it:
        it.llm.step = asyncio.Semaphore(0)

        async def ask() -> dict[str, object]:
            async with it.http.post(COMPLETION, json={"prompt": str(STEPS)}) as response:
                return dict(await response.json())

        answer, _ = await asyncio.gather(ask(), pace(it.llm.step))
    assert answer["response"] == "".join(f"{number} " for number in range(STEPS))


@in_virtual_time
async def test_a_whole_answer_in_the_making_proves_nothing_of_a_stream() -> None:
    """A processor that says that it works, and sends no record, is silent to a stream."""
    config = GatewayConfig(port=0, request_timeout=0.5)
    async with open_gateway(config, timing=PatientTiming(interval=0.05)) as it:
        it.llm.step = asyncio.Semaphore(1)
        assert "nothing more of the answer came" in str((await events(it.http, COMPLETION, {"prompt": "2"}))[-1])


async def test_a_request_that_nobody_waits_for_is_not_begun() -> None:
    """Its turn in the queue comes after its requestor has given up."""
    config = Config(flows={"default": {"text-completion": TextCompletionConfig()}})
    (route,) = config.routes("text-completion")
    llm = CountingLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, config.topics, llm, (route,), grace=0.05),
        Requestor(bus, config.topics) as requestor,
    ):
        client = LlmClient(requestor, route)
        first = asyncio.create_task(client.request("", "1", timeout=30))
        await llm.started.wait()
        with pytest.raises(Timeout, match=r"no answer came within 0\.2 s"):
            async with client.stream(TextCompletionRequest(prompt="2"), timeout=0.2) as answers:
                await anext(answers)
        third = asyncio.create_task(client.request("", "3", timeout=30))
        release(llm.step, 4)
        assert (await first, await third) == ("0 ", "0 1 2 ")
        assert [request.prompt for request in llm.requests] == ["1", "3"]


async def test_a_callers_own_total() -> None:
    """Who asks for an answer within so many seconds gets it, or hears that it did not come."""
    config = Config(flows={"default": {"text-completion": TextCompletionConfig()}})
    (route,) = config.routes("text-completion")
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, config.topics, TalkingLlm("endless"), (route,), grace=0.05),
        Requestor(bus, config.topics) as requestor,
    ):
        with pytest.raises(Timeout, match=r"no complete answer within 0\.5 s"):
            await LlmClient(requestor, route).request("", "1", timeout=0.5, streaming=True)


class TalkingLlm(CountingLlm):
    """Never ends by itself."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        while True:
            yield LlmChunk("Final Answer: " if not self.generated else "more ")
            self.generated += 1
            await asyncio.sleep(0.02)


NAP = """
[tools.nap]
kind = "python"
options.function = "tests.fakes.tools:hang"
timeout = 0.3
"""


async def test_a_long_dialog_is_not_cut(tmp_path: Path) -> None:
    """Its steps together take longer than the timeout, each of them less."""
    naps = [("Thought: so\nAction: nap\nAction Input: {}\n",)] * 7
    async with pipeline(TurnsLlm(*naps, ("Final Answer: rested",)), tmp_path, BASE + NAP) as it:
        request = AgentRequest("q", streaming=True)
        async with it.clients["default"].stream(request, timeout=SECONDS) as records:
            told: list[AgentResponse] = [record async for record in records]
    assert sum(record.chunk_type == "observation" and bool(record.end_of_message) for record in told) == 7
    assert told[-1].end_of_dialog


async def test_the_total_of_a_dialog_is_the_agents(tmp_path: Path) -> None:
    """A model that goes on for ever is stopped by the agent's limit, though it is never silent."""
    config = BASE.replace("agent = {}", "agent = { limits = { seconds = 1.0 } }")
    llm = TalkingLlm("endless")
    told = await tell(llm, tmp_path, config)
    assert isinstance(told.error, Timeout)
    assert told.error.message == "the agent did not come to an answer within 1 s"


async def test_calls_that_wait_for_their_turn_keep_the_total(tmp_path: Path) -> None:
    """Sixteen calls run side by side; the time of the others is the dialog's, and not a second one of their own."""
    tools.seen.clear()
    config = BASE.replace("agent = {}", "agent = { limits = { seconds = 1.0 } }") + NAP.replace("0.3", "20")
    llm = TurnsLlm(
        tuple(ToolCallDelta(index, f"c{index}", "nap", "{}") for index in range(20)), features=COMMON_FEATURES
    )
    told = await tell(llm, tmp_path, config)
    assert isinstance(told.error, Timeout)
    assert tools.seen.count("started") == 16


WHOLE = TextCompletionRequest(prompt="go on")
MOST_HELD = 12 * MAX_ANSWER_BYTES
"""Bytes that gathering may hold at its worst: the parts, their joined text, and its JSON."""


@asynccontextmanager
async def measured() -> AsyncIterator[None]:
    """Inside, no more than `MOST_HELD` is held at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_HELD
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("said", [WORDS, THOUGHTS, CALLS], ids=["words", "thoughts", "calls"])
async def test_a_whole_answer_is_bounded(said: LlmChunk) -> None:
    service = EndlessLlm(said)
    async with measured():
        with pytest.raises(TooLarge):
            async with aclosing(service.on_request(WHOLE)) as stream:
                await anext(stream)
    assert service.stopped.is_set()
    with pytest.raises(TooLarge):
        await service.generate_content(WHOLE)


async def test_a_caller_that_joins_a_stream_is_bounded() -> None:
    llm = EndlessLlm()
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, TOPICS, llm, TEXTS, grace=0.1),
        Requestor(bus, TOPICS) as requestor,
    ):
        client = LlmClient(requestor, TEXTS[0])
        with pytest.raises(TooLarge):
            await client.request("s", "p", streaming=True)
        await asyncio.wait_for(llm.stopped.wait(), 10)


@pytest.mark.parametrize("template", ["person", "people", "anything", "count"])
async def test_a_prompt_is_bounded(tmp_path: Path, template: str) -> None:
    file, llm = tmp_path / "tg.toml", EndlessLlm()
    file.write_text(PROMPTS_CONFIG)
    known: dict[str, dict[str, Any]] = {"person": {"who": "she"}, "count": {"n": 1}}
    variables = known.get(template, {})
    async with aclosing(MemoryBus()) as bus, prompt_pipeline(bus, file, llm) as it:
        with pytest.raises(TooLarge):
            await it.client.request(template, variables)
        assert llm.stopped.is_set()


class StreamsAllTheSame(EndlessLlm):
    """A processor of somebody else: a request for a whole answer is answered with a stream that never ends."""

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        async with aclosing(self.generate_content_stream(request)) as chunks:
            async for one in chunks:
                yield TextCompletionResponse(response=one.text)


async def test_the_callers_own_bound_holds_whatever_the_processor_sends() -> None:
    llm = StreamsAllTheSame()
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, TOPICS, llm, TEXTS, grace=0.1),
        Requestor(bus, TOPICS) as requestor,
    ):
        client: Client[TextCompletionRequest, TextCompletionResponse] = Client(requestor, TEXTS[0])
        with pytest.raises(TooLarge):
            await client.call(WHOLE)
        await asyncio.wait_for(llm.stopped.wait(), 10)


async def test_the_gateways_own_bound_holds_whatever_the_processor_sends() -> None:
    llm = StreamsAllTheSame()
    async with (
        open_gateway(instead=llm) as it,
        it.http.post(COMPLETION, json={"prompt": "go on"}) as response,
    ):
        assert (response.status, (await response.json())["error"]["type"]) == (413, "too-large")
        await asyncio.wait_for(llm.stopped.wait(), 10)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("calling", ["native", "text"])
@pytest.mark.parametrize("said", [WORDS, CALLS], ids=["words", "calls"])
async def test_an_agents_model_is_bounded(tmp_path: Path, said: LlmChunk, calling: str, *, streaming: bool) -> None:
    llm = EndlessLlm(said)
    config = BASE.replace("agent = {}", f'agent = {{ calling = "{calling}", limits = {{ seconds = 60 }} }}')
    async with pipeline(llm, tmp_path, config) as it:
        told = await it.tell(streaming=streaming)
        assert isinstance(told.error, TooLarge)
        await asyncio.wait_for(llm.stopped.wait(), 10)


async def test_the_python_client_is_bounded() -> None:
    """A gateway that streams for ever where a whole answer was asked for."""
    event = chunk(b'data: {"response":"' + b"x" * 60_000 + b'","end_of_stream":false}\n\n')
    async with gateway_wire(bytes_of(EVENTS, *[event] * 200)) as wire, TgClient(wire.url) as client:
        with pytest.raises(TooLarge):
            await client.flow().text_completion("s", "p")


async def test_the_python_clients_trace_of_a_dialog_is_bounded() -> None:
    event = chunk(
        b'data: {"chunk_type":"thought","content":"' + b"x" * 60_000 + b'","message_id":"1","end_of_dialog":false}\n\n'
    )
    async with gateway_wire(bytes_of(EVENTS, *[event] * 1300)) as wire, TgClient(wire.url) as client:
        with pytest.raises(TooLarge):
            await client.flow().agent("q")


def test_answers_of_an_agent_that_were_withdrawn_are_not_kept() -> None:
    answer, word = AnswerText(), "x" * 10_000
    for number in range(2000):
        answer.take(AgentResponse("answer", word, message_id=str(number)))
        answer.take(AgentResponse("answer", "", end_of_message=True, message_id=str(number)))
    answer.take(AgentResponse("answer", "it", message_id="last"))
    last = AgentResponse("answer", " is", end_of_message=True, end_of_dialog=True, message_id="last")
    answer.take(last)
    assert answer.final_text(last) == "it is"


def test_an_agents_answer_is_bounded() -> None:
    answer = AnswerText()
    answer.take(AgentResponse("answer", "x" * (MAX_ANSWER_BYTES - 1000), message_id="1"))
    with pytest.raises(TooLarge):
        answer.take(AgentResponse("answer", "x" * 1000, message_id="1"))


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


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_a_text_completion(text: str) -> None:
    request = {"prompt": "p"}
    async with open_gateway(instead=ScriptedLlm("begin ", text, " end", finish_reason="length")) as it:
        for told in (
            await events(it.http, COMPLETION, request),
            await frames(it.http, "text-completion", request),
        ):
            assert "".join(record["response"] for record in told) == f"begin {text} end"
            assert [record["end_of_stream"] for record in told] == [False] * (len(told) - 1) + [True]
            assert [record.get("finish_reason") for record in told] == [None] * (len(told) - 1) + ["length"]
            assert sum(record.get("out_token", 0) for record in told) == 3
        async with it.http.post(COMPLETION, json=request) as response:
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
