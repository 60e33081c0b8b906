"""Old and new processes on one bus, both ways: what both know arrives whole, and what only one knows is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI

from tests.connected.old_release import old_program
from tests.connected.pipeline import TG_SERVE, Part, Pipeline, pipeline
from tests.fakes.openai_chat_server import CompatibleServer
from tests.fakes.plan import Counts, Plan, PlannedCall
from tests.flow.background_asking import poll
from tests.pulsar_server import PulsarServer
from tg_client import TgClient
from tg_schema import (
    TEXT_COMPLETION,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
    encode,
)
from tg_schema.errors import BadRequest

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

PARTS = ("gateway", "text-completion")
TURNS = (
    Message("user", (TextPart("look "), TextPart("it up"))),
    Message("assistant", "I do.", (ToolCall("c1", "search", '{"q":"x"}'),)),
    Message("tool", "42", tool_call_id="c1"),
)
TOOL = Tool("search", "finds", {"type": "object", "properties": {"q": {"type": "string"}}})
SAMPLING = Sampling(0.5, 0.9, 40, 100, ("x",), 7, 0.1, -0.1)
REQUEST = TextCompletionRequest(
    "be brief", "and now?", streaming=True, sampling=SAMPLING, messages=TURNS, tools=(TOOL,), tool_choice="auto"
)
PLAN = Plan(reasoning=("why ", "not"), calls=(PlannedCall("search", ('{"q":', '"y"}')),), finish="tool_calls")
ANSWER = encode(
    TextCompletionResponse(
        response="Hello €!",
        reasoning="why not",
        tool_calls=(ToolCallDelta(0, "call_1", "search", '{"q":"y"}'),),
        in_token=Counts().tokens_in,
        out_token=Counts().tokens_out,
        cached_token=Counts().cached,
        cache_write_token=Counts().written,
        reasoning_token=Counts().reasoning,
        model="fake-model-2026-01-01",
        finish_reason="tool_calls",
        end_of_stream=True,
    )
).decode()

LACKING = (
    (replace(REQUEST, regex="[a-z]+"), "can't do this: regex;"),
    (replace(REQUEST, choice=("yes", "no")), "can't do this: choice;"),
    (replace(REQUEST, sampling=Sampling(typical_p=0.5)), "can't do this: typical_p;"),
)
"""What the old processor does not announce. Where a version brings what its neighbour lacks, that belongs here."""


@pytest.fixture
async def provider() -> AsyncIterator[CompatibleServer]:
    async with CompatibleServer.running() as provider:
        provider.play(PLAN)
        yield provider


@pytest.fixture
async def line(pulsar: PulsarServer, provider: CompatibleServer, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with pipeline(f"{provider.url}/v1", pulsar.service_url, tmp_path) as line:
        yield line


async def start(line: Pipeline, *, old: str) -> Part:
    """The gateway of a pipeline of which one part is old."""
    file = line.folder / "rolling.toml"
    options = f'base_url = "{line.provider}", key_variable = "", upstream_model = "fake-model", without = []'
    file.write_text(
        f"""
        [gateway]
        max_wait = 60
        [models.live]
        provider = "openai"
        options = {{ {options} }}
        [flows.{line.flow}]
        text-completion = {{ model = "live" }}
        """,
        "utf-8",
    )
    program = old_program(line.folder / "old")
    started = {
        part: line.start(part, "--config", file, program=program if part == old else (TG_SERVE,)) for part in PARTS
    }
    gateway, _ = await asyncio.gather(*started.values())
    return gateway


async def ask(gateway: Part, line: Pipeline, request: TextCompletionRequest) -> str:
    """The JSON of its answer as one record."""
    async with (
        TgClient(gateway.url, retries=0) as client,
        client.flow(line.flow).records(TEXT_COMPLETION, request) as records,
    ):
        (whole,) = TextCompletionResponse.join([record async for record in records])
    return encode(whole).decode()


async def wait_for_room(gateway: Part) -> str:
    """How a response of the tier "flex" ends."""
    async with AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="any") as client:
        made = await client.responses.create(model="live", input="x", background=True, service_tier="flex")
        return str((await poll(client, made.id)).status)


@pytest.mark.parametrize("old", PARTS)
async def test_what_both_versions_know_arrives_whole(line: Pipeline, provider: CompatibleServer, old: str) -> None:
    gateway = await start(line, old=old)
    assert await ask(gateway, line, REQUEST) == ANSWER
    assert await ask(gateway, line, replace(REQUEST, streaming=False)) == ANSWER
    # What waits for room is asked in another way, which both versions know.
    assert await wait_for_room(gateway) == "completed"
    for number in range(2):
        asked = (await provider.exchange(number)).asked
        assert asked is not None
        said = [(turn.role, turn.text, turn.tool_calls, turn.tool_call_id) for turn in asked.turns]
        assert said[:-1] == [(turn.role, turn.text, turn.tool_calls, turn.tool_call_id) for turn in TURNS]
        assert (asked.system, asked.turns[-1].text, asked.tools) == ("be brief", "and now?", (TOOL,))
        assert asked.sampling == SAMPLING


async def test_what_an_old_processor_cannot_do_is_refused_before_it_is_queued(
    line: Pipeline, provider: CompatibleServer
) -> None:
    gateway = await start(line, old="text-completion")
    for request, named in LACKING:
        with pytest.raises(BadRequest, match=named):
            await ask(gateway, line, request)
    assert not provider.exchanges
    assert await ask(gateway, line, REQUEST) == ANSWER
