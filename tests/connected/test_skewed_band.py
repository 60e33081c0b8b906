"""Responses that wait on a real broker, before gateways whose clocks are ten minutes apart, either way."""

import asyncio
import sys

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from tests.connected.pipeline import Part, Pipeline
from tests.connected.test_skewed_clocks import SKEWED_SERVE, TEN_MINUTES
from tests.fakes.live_openai import MODEL, LiveOpenAi
from tests.flow.background_asking import poll
from tests.pulsar_server import PulsarServer
from tests.until import until

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]


async def start(line: Pipeline) -> list[Part]:
    """A gateway whose clock is ahead, one whose clock is behind, and a processor with one slot."""
    file = line.configuration(line.flow, capacity=1)
    file.write_text(file.read_text("utf-8").replace("drain = 2", "drain = 2\nmax_wait = 3600"), "utf-8")
    skewed = [
        line.start("gateway", "--config", file, program=(sys.executable, SKEWED_SERVE, str(skew)))
        for skew in (TEN_MINUTES, -TEN_MINUTES)
    ]
    *gateways, _ = await asyncio.gather(*skewed, line.start("text-completion", "--config", file))
    return gateways


def client_of(gateway: Part) -> AsyncOpenAI:
    """One that does not ask again by itself."""
    return AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="any", max_retries=0)


async def put(client: AsyncOpenAI, seconds: float) -> str:
    """The id of a response that may wait so long."""
    made = await client.responses.create(
        model=MODEL, input="x", background=True, service_tier="flex", extra_body={"max_wait": seconds}
    )
    return made.id


async def count_backlog(pulsar: PulsarServer, flow: str) -> float:
    """How many wait in the flex queue of a flow, as docs/gateway.md says: by the broker's own metrics."""
    async with ClientSession() as http, http.get(f"{pulsar.admin_url}/metrics/") as page:
        lines = (await page.text()).splitlines()
    wanted = ("pulsar_subscription_back_log{", "/tg-flex-", flow, 'subscription="tg-band"')
    found = [line for line in lines if all(word in line for word in wanted)]
    return sum(float(line.split("}")[1].split()[0]) for line in found) if found else -1.0


async def until_nothing_waits(pulsar: PulsarServer, flow: str) -> None:
    """Until the flex queue of a flow is empty; the broker has no event for it."""
    async with asyncio.timeout(60):
        while True:
            if await count_backlog(pulsar, flow) == 0:
                return
            await asyncio.sleep(0.5)


async def test_what_waits_expires_when_its_time_is_over_whatever_its_gateways_clocks_show(
    live_model: LiveOpenAi, line: Pipeline, pulsar: PulsarServer
) -> None:
    gateways = await start(line)
    ahead, behind = (client_of(gateway) for gateway in gateways)
    async with ahead, behind:
        live_model.speak.clear()
        work = asyncio.create_task(ahead.responses.create(model=MODEL, input="work"))
        await until(lambda: len(live_model.generations) == 1)
        names = {await put(ahead, 120): behind, await put(behind, 120): ahead}
        lost = {await put(ahead, 0.5): behind, await put(behind, 0.5): ahead}
        # Not ten minutes later.
        for name, other in lost.items():
            assert "expired" in (await poll(other, name)).error.message
        assert {(await other.responses.retrieve(name)).status for name, other in names.items()} == {"queued"}
        # What waits is told by the broker. What has expired may be behind it, until there is room.
        assert len(names) <= await count_backlog(pulsar, line.flow) <= len(names | lost)
        live_model.finish.set()
        live_model.speak.set()
        await work
        assert {(await poll(other, name)).status for name, other in names.items()} == {"completed"}
        # Once for each.
        assert len(live_model.generations) == 1 + len(names)
        await until_nothing_waits(pulsar, line.flow)
    for gateway in gateways:
        assert '"clock.differs"' in gateway.said.read_text("utf-8")
