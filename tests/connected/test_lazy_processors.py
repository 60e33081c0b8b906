"""A model that opens in another process, over a real broker: who waits for it is told so."""

import asyncio

import pytest
from aiohttp import ClientSession

from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import MODEL, LiveOpenAi, told
from tests.flow.open_gateway import ON_ANY_PORT, until_listed
from tests.flow.test_on_demand import greeted, read_kinds
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.config import Config, TextCompletionConfig
from tg_gateway.app import Gateway

pytestmark = [pytest.mark.connected, pytest.mark.timeout(120)]


async def test_a_client_is_told_of_a_model_that_opens_elsewhere(live_model: LiveOpenAi, line: Pipeline) -> None:
    line.file.write_text(line.file.read_text("utf-8").replace("[models.live]", "[models.live]\nlazy = true"), "utf-8")
    await line.start("text-completion")
    config = Config(flows={line.flow: {"text-completion": TextCompletionConfig(model=MODEL)}})
    routes = config.routes("text-completion")
    async with (
        open_bus(line.bus) as bus,
        Requestor(bus, config.topics, queues=tuple(route.request for route in routes)) as requestor,
        Gateway(ON_ANY_PORT, requestor, routes) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until_listed(http)
        async with greeted(http) as client:
            await client.generate(1, [{"role": "user", "content": "lazy"}], model=MODEL, mode="text")
            assert await read_kinds(client, "started") == ["queued", "loading", "started"]
            live_model.finish.set()
            told("".join(each["text"] for each in await client.stream(1)), whole=True)
            # Announcements are not in one order with answers.
            status = "loading"
            async with asyncio.timeout(30):
                while status != "ready":
                    await client.send("MODEL_INFO", stream_id=2, model=MODEL)
                    status = (await client.item())["status"]
