"""A processor is killed under answers that may be continued: each reader has the text that it would have had."""

import asyncio
from pathlib import Path

import pytest

from tests.connected.pipeline import Pipeline
from tg_client import TgClient
from tg_schema import Sampling, TextCompletionResponse

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

STREAMS = 6
BEGUN_CHARACTERS = 40
PROMPT = "Count from 1 to 100."
SAMPLING = Sampling(max_tokens=1200, presence_penalty=-2, frequency_penalty=-2)
"""With it the answer has all its tokens, and they are those in which a tokenizer would write its text."""


def configure(line: Pipeline) -> Path:
    file = line.folder / "continued.toml"
    file.write_text(
        f"""
        [gateway]
        drain = 2
        [models.spoken]
        provider = "demo"
        options = {{ temperature = 0, extra_features = ["continuation"] }}
        [flows.{line.flow}]
        text-completion = {{ model = "spoken" }}
        """,
        "utf-8",
    )
    return file


async def read(url: str, flow: str, begun: asyncio.Event) -> list[TextCompletionResponse]:
    records, characters = [], 0
    async with TgClient(url) as client:
        prompt = client.flow(flow).text_completion_stream("", PROMPT, sampling=SAMPLING)
        async with prompt as chunks:
            async for record in chunks:
                records.append(record)
                characters += len(record.response or "")
                if characters >= BEGUN_CHARACTERS:
                    begun.set()
    return records


def text_of(records: list[TextCompletionResponse]) -> str:
    return "".join([record.response or "" for record in records])


async def test_answers_of_a_killed_processor_go_on(line: Pipeline) -> None:
    config = "--config", configure(line)
    gateway, first, _ = await asyncio.gather(
        line.start("gateway", *config), *[line.start("text-completion", *config) for _ in range(2)]
    )
    uncut = await read(gateway.url, line.flow, asyncio.Event())
    begun = [asyncio.Event() for _ in range(STREAMS)]
    readers = [asyncio.create_task(read(gateway.url, line.flow, each)) for each in begun]
    await asyncio.gather(*[each.wait() for each in begun])
    first.process.kill()
    answers = await asyncio.wait_for(asyncio.gather(*readers), 200)
    for answer in answers:
        last = answer[-1]
        assert text_of(answer) == text_of(uncut)
        assert (last.end_of_stream, last.finish_reason) == (True, uncut[-1].finish_reason)
    continued = [answer[-1].continued_at for answer in answers if answer[-1].continued_at]
    assert continued
    assert all(BEGUN_CHARACTERS <= at <= len(text_of(uncut)) for (at,) in continued)
