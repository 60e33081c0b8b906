"""The broker is away for longer than the client's patience grows: everybody is served again as soon as it is back."""

import asyncio
import time
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientSession

from tests.connected.live_streams import asked
from tests.connected.pipeline import pipeline
from tests.connected.test_broker_faults import published, reading, started
from tests.fakes.live_openai import LiveOpenAi, told
from tests.pulsar_or_skip import pulsar_or_skip
from tg_base.bus import open_bus
from tg_schema import TgError

pytestmark = [pytest.mark.connected, pytest.mark.timeout(400)]

ABSENCE_SECONDS = 80.0
"""The client's pauses are then about 50 s long."""
LATEST_SECONDS = 20.0
"""From the broker's health to the first answer: two on an idle machine, and room for a busy one; once it was 46."""


async def first_answer(url: str, flow: str) -> float:
    """Ask until somebody answers; how many seconds it took."""
    start = time.monotonic()
    while True:
        try:
            told(await asked(url, flow, "after", LATEST_SECONDS), whole=True)
        except TgError:
            await asyncio.sleep(0.05)
        else:
            return time.monotonic() - start


async def status_of_ready(url: str) -> int:
    """What a gateway says of itself."""
    async with ClientSession(url) as http, http.get("/ready") as response:
        return response.status


async def test_after_80_seconds_without_a_broker_the_first_answer_comes_soon(
    live_model: LiveOpenAi, tmp_path: Path
) -> None:
    kept, lasting = f"persistent://tg/request/{uuid4().hex}", f"persistent://tg/response/{uuid4().hex}"
    live_model.finish.set()
    async with (
        started(pulsar_or_skip()) as server,
        pipeline(live_model.url, server.service_url, tmp_path) as line,
        open_bus(server.service_url) as serving,
        open_bus(server.service_url) as asking,
        reading(serving, kept, "g", 0) as idle_worker,
        reading(serving, kept, "h", 100) as eager_worker,
        reading(serving, lasting, None, 100) as lasting_reader,
    ):
        gateway = await line.start("gateway")
        await line.start("text-completion")
        told(await asked(gateway.url, line.flow, "before", 60), whole=True)
        for topic in (kept, lasting):
            await asking.publish(topic, b"before", {})
        async with asyncio.timeout(60):
            await idle_worker.until({b"before"})
            await lasting_reader.until({b"before"})
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(ABSENCE_SECONDS)
        assert await status_of_ready(gateway.url) == 503
        await asyncio.to_thread(server.start)
        took = await first_answer(gateway.url, line.flow)
        print(f"first answer {took:.1f} s after the broker was healthy")
        await asyncio.wait_for(published(asking, [kept, lasting], b"after"), 60)
        async with asyncio.timeout(60):
            await idle_worker.until({b"before", b"after"})
            await eager_worker.until({b"before", b"after"})
            await lasting_reader.until({b"before", b"after"})
        assert took < LATEST_SECONDS
        assert all(part.alive for part in line.parts)
