"""A batch over a real broker, whose gateway is killed at a third: nothing is missing, double, or paid twice."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final

import openai
import pytest
from openai.types import Batch

from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import MODEL, LiveOpenAi

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]
LINES = 200
CHAT: Final = "/v1/chat/completions"


def client_of(gateway: Part) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="none", max_retries=0)


def write(number: int) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"p{number}"}]}
    return json.dumps({"custom_id": f"l{number}", "method": "POST", "url": CHAT, "body": body})


async def until(client: openai.AsyncOpenAI, batch: str, lines: int, status: str) -> Batch:
    """Until so many lines are answered, and the batch has this status."""
    async with asyncio.timeout(120):
        while True:
            found = await client.batches.retrieve(batch)
            assert found.request_counts is not None
            assert found.request_counts.failed == 0
            if found.status == status and found.request_counts.completed >= lines:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("jobs", [False, True])
async def test_a_batch_outlives_the_gateway_that_makes_it(live_model: LiveOpenAi, line: Pipeline, jobs: bool) -> None:
    live_model.finish.set()
    async with AsyncExitStack() as stack:
        await asyncio.gather(line.start("text-completion"), *([line.start("jobs")] if jobs else []))
        one = await line.start("gateway")
        client = await stack.enter_async_context(client_of(one))
        text = "\n".join(write(number) for number in range(LINES))
        file = await client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
        batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        other = await line.start("gateway")
        await until(client, batch.id, LINES // 3, "in_progress")
        one.process.kill()
        assert await one.stopped(15) == -9
        reader = await stack.enter_async_context(client_of(other))
        batch = await until(reader, batch.id, LINES, "completed")
        assert batch.output_file_id is not None
        answers = (await reader.files.content(batch.output_file_id)).content.splitlines()
        assert Counter(json.loads(each)["custom_id"] for each in answers) == Counter(f"l{n}" for n in range(LINES))
    assert [len(live_model.of(f"p{number}")) for number in range(LINES)] == [1] * LINES
