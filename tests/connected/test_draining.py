"""SIGTERM under fifty live streams: whoever can finish does, the rest end in one error, and the exit code is 0."""

import os

import pytest

from tests.connected.live_streams import STREAMS, asked, live_streams
from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import LiveOpenAi, told

TIMES = int(os.environ.get("TOKENGRID_ENDINGS", "1"))
"""How often each part is stopped under its streams."""

pytestmark = [pytest.mark.connected, pytest.mark.timeout(240 + 60 * TIMES)]

GRACE = 2.0
"""Seconds that running streams get: `drain` of the pipeline's configuration."""
LAST_WORDS = 10.0


@pytest.mark.parametrize("finishes", [True, False])
@pytest.mark.parametrize("leaver", ["gateway", "text-completion"])
async def test_a_drain_under_fifty_streams(
    line: Pipeline, live_model: LiveOpenAi, leaver: str, *, finishes: bool
) -> None:
    """Both the streams that end within the grace time and those that do not."""
    other = "text-completion" if leaver == "gateway" else "gateway"
    stays = await line.start(other)
    for _ in range(TIMES):
        leaves = await line.start(leaver)
        gateway = leaves if leaves.url else stays
        await drained(line, live_model, leaves, gateway, finishes=finishes)


async def drained(line: Pipeline, model: LiveOpenAi, leaves: Part, gateway: Part, *, finishes: bool) -> None:
    model.finish.set()
    await asked(gateway.url, line.flow, "whoever is new has been heard of", 30)
    model.finish.clear()
    async with live_streams(gateway.url, line.flow) as live:
        await live.begun(30)
        leaves.process.terminate()
        if finishes:
            model.finish.set()
        await live.over(GRACE + LAST_WORDS)
        assert await leaves.stopped(LAST_WORDS) == 0
    assert len(live.whole) == (STREAMS if finishes else 0)
    assert live.failed == ({} if finishes else {"unavailable": STREAMS})
    for stream in live.streams:
        told(stream.text, whole=finishes)
    await model.until(lambda: not model.running, LAST_WORDS)
