"""The clocks of an answer: its first record, silence, and a total that is the model's or the agent's own."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes import tools
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.fakes.typed_clients import LlmClient
from tests.flow.agent_dialog import BASE, pipeline
from tests.flow.open_gateway import open_gateway
from tests.flow.patient_timing import PatientTiming
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig, TextCompletionConfig
from tg_base.llm import LlmChunk
from tg_base.server import Processor
from tg_schema import COMMON_FEATURES, AgentRequest, AgentResponse, TextCompletionRequest, ToolCallDelta
from tg_schema.errors import Timeout

COMPLETION = "api/v1/text-completion"
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


async def events(http: ClientSession, prompt: str) -> list[dict[str, object]]:
    async with http.post(COMPLETION, json={"prompt": prompt, "streaming": True}) as response:
        lines = (await response.read()).decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@in_virtual_time
async def test_a_stream_in_flow_is_not_cut() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=SECONDS)) as it:
        it.llm.step = asyncio.Semaphore(0)
        told, _ = await asyncio.gather(events(it.http, str(STEPS)), pace(it.llm.step))
    assert "".join(str(event["response"]) for event in told) == "".join(f"{number} " for number in range(STEPS))
    assert told[-1]["end_of_stream"] is True


@in_virtual_time
async def test_silence_ends_a_stream() -> None:
    async with open_gateway(GatewayConfig(port=0, request_timeout=0.3)) as it:
        it.llm.step = asyncio.Semaphore(1)
        told = await events(it.http, "2")
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
        assert "nothing more of the answer came" in str((await events(it.http, "2"))[-1])


async def test_a_request_that_nobody_waits_for_is_not_begun() -> None:
    """Its turn in the queue comes after its requestor has given up."""
    config = Config(flows={"default": {"text-completion": TextCompletionConfig()}})
    (route,) = config.routes("text-completion")
    bus, llm = MemoryBus(), CountingLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    async with (
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
        for _ in range(4):
            llm.step.release()
        assert (await first, await third) == ("0 ", "0 1 2 ")
        assert [request.prompt for request in llm.requests] == ["1", "3"]
    await bus.aclose()


async def test_a_callers_own_total() -> None:
    """Who asks for an answer within so many seconds gets it, or hears that it did not come."""
    config = Config(flows={"default": {"text-completion": TextCompletionConfig()}})
    (route,) = config.routes("text-completion")
    bus = MemoryBus()
    async with (
        Processor(bus, config.topics, EndlessLlm("endless"), (route,), grace=0.05),
        Requestor(bus, config.topics) as requestor,
    ):
        with pytest.raises(Timeout, match=r"no complete answer within 0\.5 s"):
            await LlmClient(requestor, route).request("", "1", timeout=0.5, streaming=True)
    await bus.aclose()


class EndlessLlm(CountingLlm):
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
    llm = EndlessLlm("endless")
    async with pipeline(llm, tmp_path, config) as it:
        told = await it.tell()
    assert isinstance(told.error, Timeout)
    assert told.error.message == "the agent did not come to an answer within 1 s"


async def test_calls_that_wait_for_their_turn_keep_the_total(tmp_path: Path) -> None:
    """Sixteen calls run side by side; the time of the others is the dialog's, and not a second one of their own."""
    tools.seen.clear()
    config = BASE.replace("agent = {}", "agent = { limits = { seconds = 1.0 } }") + NAP.replace("0.3", "20")
    llm = TurnsLlm(
        tuple(ToolCallDelta(index, f"c{index}", "nap", "{}") for index in range(20)), features=COMMON_FEATURES
    )
    async with pipeline(llm, tmp_path, config) as it:
        told = await it.tell()
    assert isinstance(told.error, Timeout)
    assert tools.seen.count("started") == 16
