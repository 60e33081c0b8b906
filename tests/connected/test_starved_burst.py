"""A burst on a machine that has no time: whoever works is not dead, and what waits for him is not given up."""

import asyncio

import pytest

from tests.connected.busy_machine import busy_machine
from tests.connected.live_streams import asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

BURST = 432
CAPACITY = 64
EATERS = 6
EAT_SECONDS = 60.0
STALL_SECONDS = 5.0
"""How long the model answers nothing, so that most requests wait for longer than a silence that is death."""
ANSWER_SECONDS = 120.0


async def test_a_burst_on_a_starved_machine(live_model: LiveOpenAi, line: Pipeline) -> None:
    configuration = line.configuration(line.flow, capacity=CAPACITY, queue=BURST)
    gateway, _ = await asyncio.gather(
        line.start("gateway", "--config", configuration), line.start("text-completion", "--config", configuration)
    )
    live_model.finish.set()
    await asked(gateway.url, line.flow, "the processor has been heard of", 60)
    live_model.speak.clear()
    async with (
        busy_machine(EATERS, EAT_SECONDS),
        live_streams(gateway.url, line.flow, count=BURST, timeout=ANSWER_SECONDS) as live,
    ):
        await live_model.until(lambda: len(live_model.running) == CAPACITY, ANSWER_SECONDS)
        await asyncio.sleep(STALL_SECONDS)
        live_model.speak.set()
        await live.over(ANSWER_SECONDS)
    assert live.failed == {}
    assert len(live.whole) == BURST
    for stream in live.streams:
        told(stream.text, whole=True)
        assert len(live_model.of(stream.prompt)) == 1
