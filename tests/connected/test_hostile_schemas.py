"""Schemas that mean years of work, sent to three processors over a broker: each costs one refusal, and nobody else."""

import asyncio
import signal
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.connected.live_streams import asked
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.hostile_inputs.schemas import CLASSES, double
from tg_client import TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

BEGIN_SECONDS = 60.0
END_SECONDS = 30.0
PROCESSORS = 3


async def test_a_schema_that_doubles_holds_up_no_processor(live_model: LiveOpenAi, line: Pipeline) -> None:
    """One is refused by its ways, and one, which cannot be counted, after its check was ended."""
    parts = ["text-completion"] * PROCESSORS
    gateway, *processors = await asyncio.gather(*(line.start(part) for part in ("gateway", *parts)))
    live_model.finish.set()
    await asked(gateway.url, line.flow, "a processor has been heard of", BEGIN_SECONDS)
    async with ClientSession(gateway.url) as http, TgClient(gateway.url, retries=0) as client:

        async def refused(schema: dict[str, Any]) -> None:
            path = f"api/v1/flow/{line.flow}/service/text-completion"
            async with http.post(path, json={"prompt": "q", "schema": schema}) as response:
                assert (response.status, "too much work" in await response.text()) == (400, True)

        sent = [double("allOf", 30), double("anyOf", 30), CLASSES]
        hostile = [asyncio.create_task(refused(schema)) for schema in sent * PROCESSORS]
        for number in range(5 * PROCESSORS):
            answer = await client.flow(line.flow).text_completion("", f"beside it {number}", timeout=END_SECONDS)
            told(answer.text, whole=True)
        async with asyncio.timeout(BEGIN_SECONDS):
            await asyncio.gather(*hostile)
    assert all(part.alive for part in (gateway, *processors))
    for processor in processors:
        processor.process.send_signal(signal.SIGTERM)
    assert [await processor.stopped(END_SECONDS) for processor in processors] == [0] * PROCESSORS
