"""A model that two processes bring to a broker: gateways without a file serve it until both have been killed."""

from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from tests.connected.pipeline import Pipeline
from tests.until import until
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.config import Config, GatewayConfig
from tg_gateway.app import Gateway

pytestmark = [pytest.mark.connected, pytest.mark.timeout(120)]

GATEWAYS = 3
ANNOUNCED = GatewayConfig(port=0, drain=0.05, announced=True)


async def list_flows(http: ClientSession) -> dict[str, str]:
    """The flow of each model that a gateway serves; other tests share the broker."""
    async with http.get("api/v1/models") as response:
        return {each["model"]: each["flow"] for each in (await response.json())["models"]}


async def test_all_gateways_serve_what_is_announced_until_the_last_process_is_dead(line: Pipeline) -> None:
    model, topics = f"model-of-{line.flow}", Config().topics
    text = line.file.read_text("utf-8").replace("models.live", f"models.{model}").replace('"live"', f'"{model}"')
    line.file.write_text(text)
    async with AsyncExitStack() as stack:
        doors, requestors = [], []
        for _ in range(GATEWAYS):
            bus = await stack.enter_async_context(open_bus(line.bus))
            requestors.append(await stack.enter_async_context(Requestor(bus, topics)))
            gateway = await stack.enter_async_context(Gateway(ANNOUNCED, requestors[-1], ()))
            doors.append(await stack.enter_async_context(ClientSession(gateway.url)))
        queue = topics.request(line.flow, "text-completion")
        parts = [await line.start("text-completion") for _ in range(2)]
        while parts:
            await until(lambda: {len(each.presence.serving(queue)) for each in requestors} == {len(parts)})
            assert [(await list_flows(http)).get(model) for http in doors] == [line.flow] * GATEWAYS
            parts.pop().process.kill()
        for http in doors:
            while model in await list_flows(http):
                pass
