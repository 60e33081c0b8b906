"""The network falls silent under fifty streams, sockets open: one typed error each in time, and all works after."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.connected.live_streams import STREAMS, asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.fakes.swallowing_proxy import SwallowingProxy
from tests.pulsar_server import PulsarServer
from tg_client import TgClient
from tg_schema import TgError
from tg_schema.errors import BusError, Unavailable

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

BOUND = 5.0
"""Seconds after the last sign of life in which a stream must have ended."""
SECONDS_TO_RECOVER = 60.0


@pytest.fixture
async def proxy(pulsar: PulsarServer) -> AsyncIterator[SwallowingProxy]:
    port = int(pulsar.service_url.rsplit(":", 1)[1])
    async with SwallowingProxy.before(port) as proxy:
        yield proxy


async def test_a_gateway_cut_off_from_the_broker(
    proxy: SwallowingProxy, live_model: LiveOpenAi, line: Pipeline
) -> None:
    gateway = await line.start("gateway", bus=f"pulsar://127.0.0.1:{proxy.port}")
    await line.start("text-completion")
    loop = asyncio.get_running_loop()
    async with live_streams(gateway.url, line.flow) as live:
        await live.begun(30)
        proxy.swallow()
        cut = loop.time()
        with pytest.raises((BusError, Unavailable)):
            await ask_once(gateway.url, line.flow, "during")
        assert loop.time() - cut < BOUND
        await live.over(BOUND)
        assert max(stream.ended_at for stream in live.streams) - cut < BOUND
        assert live.failed == {"unavailable": STREAMS}
    await live_model.until(lambda: not live_model.running, BOUND)
    assert max(generation.left_at for generation in live_model.generations) - cut < BOUND
    assert proxy.swallowed > 0
    proxy.heal()
    live_model.finish.set()
    told(await asked(gateway.url, line.flow, "after", SECONDS_TO_RECOVER), whole=True)
    assert all(part.alive for part in line.parts)
    assert len(live_model.of("during")) == 0
    assert [len(live_model.of(stream.prompt)) for stream in live.streams] == [1] * STREAMS


async def test_a_processor_cut_off_from_the_broker(
    proxy: SwallowingProxy, live_model: LiveOpenAi, line: Pipeline
) -> None:
    gateway, far = await asyncio.gather(
        line.start("gateway"), line.start("text-completion", bus=f"pulsar://127.0.0.1:{proxy.port}")
    )
    async with live_streams(gateway.url, line.flow, prefix="far") as relayed:
        await relayed.begun(30)
        live_model.speak.clear()
        async with live_streams(gateway.url, line.flow, prefix="silent") as silent:
            await live_model.until(lambda: len(live_model.generations) == 2 * STREAMS, 20)
            near = await line.start("text-completion")
            proxy.swallow()
            await relayed.over(BOUND)
            assert relayed.failed == {"unavailable": STREAMS}
            live_model.speak.set()
            live_model.finish.set()
            await silent.over(2 * BOUND)
            assert len(silent.whole) == STREAMS
    for stream in silent.streams:
        told(stream.text, whole=True)
        assert [len(live_model.of(stream.prompt)) for stream in silent.streams] == [2] * STREAMS
    near.process.terminate()
    assert await near.stopped(20) == 0
    proxy.heal()
    told(await asked(gateway.url, line.flow, "after", SECONDS_TO_RECOVER), whole=True)
    assert far.alive
    assert [len(live_model.of(stream.prompt)) for stream in relayed.streams] == [1] * STREAMS


async def test_a_request_that_the_broker_gets_late_is_not_begun(
    proxy: SwallowingProxy, live_model: LiveOpenAi, line: Pipeline
) -> None:
    gateway = await line.start("gateway", bus=f"pulsar://127.0.0.1:{proxy.port}")
    await line.start("text-completion")
    live_model.finish.set()
    told(await asked(gateway.url, line.flow, "before", 30), whole=True)
    proxy.hold()
    with pytest.raises((BusError, Unavailable)):
        await ask_once(gateway.url, line.flow, "late")
    proxy.release()
    told(await asked(gateway.url, line.flow, "after", SECONDS_TO_RECOVER), whole=True)
    assert len(live_model.of("late")) == 0
    assert len(live_model.of("after")) == 1


async def ask_once(url: str, flow: str, prompt: str) -> None:
    """The error of a request, whatever it is."""
    async with TgClient(url, retries=0) as client:
        await client.flow(flow).text_completion("", prompt, timeout=60)
        raise TgError("it was answered")
