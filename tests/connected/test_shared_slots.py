"""Two flows on one model with one slot, as processes: both are answered, in turn, and an idle one holds nothing."""

import asyncio

import pytest

from tests.connected.live_streams import asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tg_client import TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

REQUESTS = 20
ANSWER_SECONDS = 5.0
"""Seconds for one answer while nobody else asks; an idle flow that held the slot would take ten."""
BEGIN_SECONDS = 60.0


async def test_two_flows_on_one_slot(live_model: LiveOpenAi, line: Pipeline) -> None:
    flows = [f"{line.flow}-a", f"{line.flow}-b"]
    both = line.configuration(*flows, capacity=1)
    gateway, _ = await asyncio.gather(
        line.start("gateway", "--config", both), line.start("text-completion", "--config", both)
    )
    live_model.finish.set()
    await asked(gateway.url, flows[0], "the processor has been heard of", BEGIN_SECONDS)
    async with TgClient(gateway.url, retries=0) as client:

        async def answered(flow: str, prompt: str) -> None:
            answer = await client.flow(flow).text_completion("", prompt, timeout=BEGIN_SECONDS)
            told(answer.text, whole=True)

        for number in range(4):  # the other flow is idle
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered(flows[0], f"alone {number}")
        for number in range(REQUESTS):
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered(flows[number % 2], f"in turn {number}")
        async with asyncio.timeout(BEGIN_SECONDS):
            await asyncio.gather(*(answered(flows[number % 2], f"at once {number}") for number in range(REQUESTS)))
    assert len(live_model.generations) == len({generation.prompt for generation in live_model.generations})

    # A second processor takes what the first one, busy with the other flow, gives back.
    await line.start("text-completion", "--config", both)
    for number in range(4):
        live_model.finish.clear()
        async with (
            live_streams(gateway.url, flows[0], count=1, prefix=f"busy {number} ") as first,
            live_streams(gateway.url, flows[1], count=1, prefix=f"idle {number} ") as second,
        ):
            await first.begun(ANSWER_SECONDS)
            await second.begun(ANSWER_SECONDS)
            assert len(live_model.running) == 2
            live_model.finish.set()
            await first.over(ANSWER_SECONDS)
            await second.over(ANSWER_SECONDS)
            assert len(first.whole) == len(second.whole) == 1
