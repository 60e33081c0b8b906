"""The broker is away for longer than the client's patience grows: everybody is served again as soon as it is back."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pulsar as pulsar_client
import pytest
from aiohttp import ClientSession

from tests.connected.live_streams import asked
from tests.connected.pipeline import Pipeline, pipeline
from tests.connected.test_broker_faults import published, reading
from tests.fakes.live_openai import LiveOpenAi, told
from tests.fakes.swallowing_proxy import SwallowingProxy
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_schema import TgError

pytestmark = [pytest.mark.connected, pytest.mark.timeout(400)]

ABSENCE_SECONDS = 66.0
"""The client's pauses are then 24 s long; the one that began last, a second or two before."""
LATEST_SECONDS = 15.0
"""From the broker's return to the first answer: two on an idle machine, and room for a busy one; the client's own
pauses end 23 s after the return."""
BOOT_SECONDS = 6.0
"""The end of the absence, in which connections are accepted and cut, as before a broker that boots."""
PROBING_SECONDS = 10.0
BUSES_HERE = 2
BUSES = BUSES_HERE + 2
"""Those of this process, of the gateway and of the processor."""


@pytest.fixture
async def proxy(pulsar: PulsarServer) -> AsyncIterator[SwallowingProxy]:
    """Stands for the broker: it is away without a pause for booting, and counts who is connected."""
    async with SwallowingProxy.before(int(pulsar.service_url.rsplit(":", 1)[1])) as proxy:
        yield proxy


@pytest.fixture
async def line(proxy: SwallowingProxy, live_model: LiveOpenAi, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with pipeline(live_model.url, f"pulsar://127.0.0.1:{proxy.port}", tmp_path) as line:
        yield line


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


def list_clients() -> list[object]:
    """Clients of the broker that this process has not let go."""
    return [each for each in gc.get_objects() if isinstance(each, pulsar_client.Client)]


def list_timers() -> set[str]:
    """Descriptors of timers: a client keeps one for as long as its threads run, also if it was closed in vain."""
    timers = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if each.readlink().name == "anon_inode:[timerfd]":
                timers.add(each.name)
    return timers


async def one_client_each(proxy: SwallowingProxy, earlier: list[object]) -> None:
    """Wait until each bus has one client and no other; what only probes is gone soon.

    A client has two connections: one to look up where a topic is, and one to there. Those of tests before this one,
    which are held so that none of them goes meanwhile, do not count.
    """
    had = set(map(id, earlier))
    async with asyncio.timeout(PROBING_SECONDS):
        while len({*map(id, list_clients())} - had) != BUSES_HERE or proxy.connections != 2 * BUSES:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.1)


async def test_after_66_seconds_without_a_broker_the_first_answer_comes_soon_and_each_bus_has_one_client(
    live_model: LiveOpenAi, proxy: SwallowingProxy, line: Pipeline
) -> None:
    kept, lasting = f"persistent://tg/request/{uuid4().hex}", f"persistent://tg/response/{uuid4().hex}"
    live_model.finish.set()
    # Threads of tests before this one may end meanwhile.
    earlier, earlier_timers = list_clients(), list_timers()
    async with (
        open_bus(line.bus) as serving,
        open_bus(line.bus) as asking,
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
        await one_client_each(proxy, earlier)
        timers = len(list_timers() - earlier_timers)
        proxy.leave()
        await asyncio.sleep(ABSENCE_SECONDS - BOOT_SECONDS)
        await proxy.come_back(refusing=True)
        await asyncio.sleep(BOOT_SECONDS)
        assert await status_of_ready(gateway.url) == 503
        await proxy.come_back()
        took = await first_answer(gateway.url, line.flow)
        print(f"first answer {took:.1f} s after the broker was back")
        await asyncio.wait_for(published(asking, [kept, lasting], b"after"), 60)
        async with asyncio.timeout(60):
            await idle_worker.until({b"before", b"after"})
            await eager_worker.until({b"before", b"after"})
            await lasting_reader.until({b"before", b"after"})
        assert took < LATEST_SECONDS
        await one_client_each(proxy, earlier)
        assert len(list_timers() - earlier_timers) == timers
        assert all(part.alive for part in line.parts)
