"""The broker is killed under fifty live streams and comes back: one end each, nobody dies, nothing is paid twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.connected.live_streams import STREAMS, TIMEOUT, asked, live_streams
from tests.connected.pipeline import Pipeline, pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TYPED = {"unavailable", "bus", "timeout"}
SECONDS_TO_RECOVER = 60.0


@pytest.fixture
async def server() -> AsyncIterator[PulsarServer]:
    """A broker of our own, since it is killed."""
    server = pulsar_or_skip()
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        await asyncio.to_thread(server.close)


@pytest.fixture
async def own_line(server: PulsarServer, live_model: LiveOpenAi, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with pipeline(live_model.url, server.service_url, tmp_path) as line:
        yield line


async def test_a_broker_killed_under_fifty_streams(
    server: PulsarServer, live_model: LiveOpenAi, own_line: Pipeline
) -> None:
    gateway = await own_line.start("gateway")
    await asyncio.gather(own_line.start("text-completion"), own_line.start("text-completion"))
    async with live_streams(gateway.url, own_line.flow) as live:
        await live.begun(30)
        await asyncio.to_thread(server.kill)
        await live.over(TIMEOUT)
        assert not live.whole
        assert sum(live.failed.values()) == STREAMS
        assert set(live.failed) <= TYPED
        for stream in live.streams:
            told(stream.text, whole=False)
    await live_model.until(lambda: not live_model.running, 10)
    assert all(part.alive for part in own_line.parts)
    await asyncio.to_thread(server.start)
    live_model.finish.set()
    told(await asked(gateway.url, own_line.flow, "after", SECONDS_TO_RECOVER), whole=True)
    assert all(part.alive for part in own_line.parts)
    assert [len(live_model.of(stream.prompt)) for stream in live.streams] == [1] * STREAMS
