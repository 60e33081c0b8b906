"""A model that never stops, in every place that gathers an answer: one typed error, and the model is stopped."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes.endless_llm import CALLS, THOUGHTS, WORDS, EndlessLlm
from tests.fakes.gateway_wire import EVENTS, bytes_of, chunk, gateway_wire
from tests.fakes.typed_clients import LlmClient
from tests.flow.agent_dialog import BASE
from tests.flow.agent_dialog import pipeline as agent_pipeline
from tests.flow.open_gateway import ON_ANY_PORT, TEXTS
from tests.flow.test_prompt_service import CONFIG, TOPICS, pipeline
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.llm import LlmChunk
from tg_base.server import Processor
from tg_client import TgClient
from tg_flow.agent.core.answer_text import AnswerText
from tg_gateway.app import Gateway
from tg_schema import AgentResponse, TextCompletionRequest, TextCompletionResponse
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import TooLarge

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
    bus, llm = MemoryBus(), EndlessLlm()
    async with Processor(bus, TOPICS, llm, TEXTS, grace=0.1), Requestor(bus, TOPICS) as requestor:
        client = LlmClient(requestor, TEXTS[0])
        with pytest.raises(TooLarge):
            await client.request("s", "p", streaming=True)
        await asyncio.wait_for(llm.stopped.wait(), 10)
    await bus.aclose()


@pytest.mark.parametrize("template", ["person", "people", "anything", "count"])
async def test_a_prompt_is_bounded(tmp_path: Path, template: str) -> None:
    file, bus, llm = tmp_path / "tg.toml", MemoryBus(), EndlessLlm()
    file.write_text(CONFIG)
    known: dict[str, dict[str, Any]] = {"person": {"who": "she"}, "count": {"n": 1}}
    variables = known.get(template, {})
    async with pipeline(bus, file, llm) as it:
        with pytest.raises(TooLarge):
            await it.client.request(template, variables)
        assert llm.stopped.is_set()
    await bus.aclose()


class StreamsAllTheSame(EndlessLlm):
    """A processor of somebody else: a request for a whole answer is answered with a stream that never ends."""

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        async with aclosing(self.generate_content_stream(request)) as chunks:
            async for one in chunks:
                yield TextCompletionResponse(response=one.text)


async def test_the_callers_own_bound_holds_whatever_the_processor_sends() -> None:
    bus, llm = MemoryBus(), StreamsAllTheSame()
    async with Processor(bus, TOPICS, llm, TEXTS, grace=0.1), Requestor(bus, TOPICS) as requestor:
        client: Client[TextCompletionRequest, TextCompletionResponse] = Client(requestor, TEXTS[0])
        with pytest.raises(TooLarge):
            await client.call(WHOLE)
        await asyncio.wait_for(llm.stopped.wait(), 10)
    await bus.aclose()


async def test_the_gateways_own_bound_holds_whatever_the_processor_sends() -> None:
    bus, llm = MemoryBus(), StreamsAllTheSame()
    async with (
        Processor(bus, TOPICS, llm, TEXTS, grace=0.1),
        Requestor(bus, TOPICS) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
        http.post("api/v1/text-completion", json={"prompt": "go on"}) as response,
    ):
        assert (response.status, (await response.json())["error"]["type"]) == (413, "too-large")
        await asyncio.wait_for(llm.stopped.wait(), 10)
    await bus.aclose()


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("calling", ["native", "text"])
@pytest.mark.parametrize("said", [WORDS, CALLS], ids=["words", "calls"])
async def test_an_agents_model_is_bounded(tmp_path: Path, said: LlmChunk, calling: str, *, streaming: bool) -> None:
    llm = EndlessLlm(said)
    config = BASE.replace("agent = {}", f'agent = {{ calling = "{calling}", limits = {{ seconds = 60 }} }}')
    async with agent_pipeline(llm, tmp_path, config) as it:
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
