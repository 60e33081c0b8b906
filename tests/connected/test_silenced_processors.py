"""A request that makes its processor spin, before three of them: two end and say why, the third never gets it."""

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.connected.pipeline import Part, Pipeline, pipeline
from tests.fakes.holding_llm import HOLD
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_schema import TextCompletionRequest, decode
from tg_schema.topics import Topics

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

DOUBLINGS = 45
REFUSED_SECONDS = 30.0
"""Two silences of 3.5 s, on a machine with more to do."""
ENDED_SECONDS = 60.0
"""5 s of CPU time, on such a machine."""


@pytest.fixture
async def line(pulsar: PulsarServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pipeline]:
    """No part of it runs yet; the processes find the model of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    async with pipeline("http://127.0.0.1:9/v1", pulsar.service_url, tmp_path) as line:
        line.file.write_text(
            f"""
            [models.holding]
            provider = "tests.fakes.holding_llm:HoldingLlm"
            [flows.{line.flow}]
            text-completion = {{ model = "holding" }}
            """,
            "utf-8",
        )
        yield line


async def three(line: Pipeline) -> tuple[Part, list[Part]]:
    """The gateway and the processors."""
    gateway, *parts = await asyncio.gather(line.start("gateway"), *(line.start("text-completion") for _ in range(3)))
    return gateway, parts


async def ask(gateway: Part, prompt: str, **fields: Any) -> tuple[int, str]:
    """Status and body at OpenAI's door."""
    body = {"model": "holding", "messages": [{"role": "user", "content": prompt}], **fields}
    async with (
        aiohttp.ClientSession(gateway.url) as http,
        asyncio.timeout(REFUSED_SECONDS),
        http.post("v1/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.text()


async def test_what_holds_every_loop_is_refused_by_the_second_processor(line: Pipeline, pulsar: PulsarServer) -> None:
    gateway, processors = await three(line)
    topics = Topics()
    queue = topics.request(line.flow, "text-completion")
    async with (
        open_bus(pulsar.service_url) as bus,
        bus.subscribe(topics.dead_letter(queue), None) as dead_letters,
    ):
        status, body = await ask(gateway, HOLD)
        assert (status, "2 processors fell silent" in body) == (HTTPStatus.BAD_REQUEST, True), body
        letter = await asyncio.wait_for(anext(dead_letters), REFUSED_SECONDS)
        assert decode(TextCompletionRequest, letter.body).turns[-1].text == HOLD
        assert "fell silent" in letter.properties["reason"]
    assert (await ask(gateway, "well"))[0] == HTTPStatus.OK
    async with asyncio.timeout(ENDED_SECONDS):
        while sum(part.alive for part in processors) > 1:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.05)
    ended = [part for part in processors if not part.alive]
    assert [part.process.returncode for part in ended] == [1, 1]
    for part in ended:
        lines = [json.loads(line) for line in part.said.read_text("utf-8").splitlines()]
        (held,) = [line for line in lines if line["event"] == "loop.held"]
        assert "holding_llm.py:" in held["at"][0]
        assert held["request"]


async def test_a_schema_that_doubles_is_refused_and_ends_nobody(line: Pipeline) -> None:
    gateway, processors = await three(line)
    steps = {
        f"d{step}": {"allOf": [{"$ref": f"#/$defs/d{step + 1}"}, {"$ref": f"#/$defs/d{step + 1}"}]}
        for step in range(DOUBLINGS)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{DOUBLINGS}": {"type": "object"}}}
    form = {"type": "json_schema", "json_schema": {"name": "doubling", "schema": schema}}
    status, body = await ask(gateway, "well", response_format=form)
    assert (status // 100, "fell silent" in body) == (4, False), body
    assert all(part.alive for part in processors)
    assert (await ask(gateway, "well"))[0] == HTTPStatus.OK
