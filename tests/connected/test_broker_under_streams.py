"""The broker is killed under fifty live streams and comes back: one end each, in time; no death, nothing paid twice."""

import asyncio
import time

import pytest

from tests.connected.lateness import lateness
from tests.connected.live_streams import STREAMS, TIMEOUT, asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.pulsar_server import PulsarServer

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TYPED = {"unavailable", "bus"}
BOUND_SECONDS = 5.0
"""From the kill, after which nobody is heard, to the end of every stream; the machine's lateness comes on top."""
SECONDS_TO_RECOVER = 60.0


def killed(server: PulsarServer) -> float:
    """The loop's time right before the kill; a thread of its own may be late itself."""
    moment = time.monotonic()
    server.kill()
    return moment


async def test_a_broker_killed_under_fifty_streams(
    mortal_pulsar: PulsarServer, live_model: LiveOpenAi, line: Pipeline
) -> None:
    gateway = await line.start("gateway")
    await asyncio.gather(line.start("text-completion"), line.start("text-completion"))
    async with live_streams(gateway.url, line.flow) as live:
        await live.begun(30)
        async with lateness(gateway) as late:
            kill = await asyncio.to_thread(killed, mortal_pulsar)
            await live.over(TIMEOUT)
            took = max(stream.ended_at for stream in live.streams) - kill
            print(f"all had ended {took:.2f} s after the kill; the machine was late by {late():.2f} s")
            assert took < BOUND_SECONDS + late()
        assert not live.whole
        assert sum(live.failed.values()) == STREAMS
        assert set(live.failed) <= TYPED
        for stream in live.streams:
            told(stream.text, whole=False)
    await live_model.until(lambda: not live_model.running, 10)
    assert all(part.alive for part in line.parts)
    await asyncio.to_thread(mortal_pulsar.start)
    live_model.finish.set()
    told(await asked(gateway.url, line.flow, "after", SECONDS_TO_RECOVER), whole=True)
    assert all(part.alive for part in line.parts)
    assert [len(live_model.of(stream.prompt)) for stream in live.streams] == [1] * STREAMS
