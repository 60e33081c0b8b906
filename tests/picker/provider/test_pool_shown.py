"""Pools of processors in the live view: those of all processors on the bus, added up."""

from contextlib import AsyncExitStack

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.flow.open_gateway import CONFIG, TEXTS, open_gateway
from tests.flow.test_live import asked, see
from tests.picker.provider.test_pool_provider import address
from tg_base.server import Processor
from tg_client import TgClient
from tg_flow.providers import open_provider
from tg_schema.live import LiveDocument


def shows(document: LiveDocument, running: int) -> bool:
    """Whether there is one pool of two servers, with so many requests."""
    return [pool and (pool.servers, pool.ready, pool.running) for pool in document.pools.values()] == [(2, 2, running)]


async def test_a_gateway_shows_the_pool_of_two_processors() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(OpenAiServer.running()) for _ in range(2)]
        for server in servers:
            server.play(Script(fault=Fault.STALL))
        table = {"endpoints": [address(server) for server in servers], "scraped": False, "capacity": 1}
        one, other = [await open_provider("pool", OpenAiServer.model, table) for _ in range(2)]
        it = await stack.enter_async_context(open_gateway(instead=one))
        stack.push_async_callback(one.aclose)
        stack.push_async_callback(other.aclose)
        client = await stack.enter_async_context(TgClient(it.gateway.url, retries=0))
        assert (await see(client, lambda document: shows(document, 0))).totals["pools"] == 1
        await stack.enter_async_context(asked(it, prompt="one"))
        await see(client, lambda document: shows(document, 1))
        async with Processor(it.bus, CONFIG.topics, other, TEXTS, models=(it.llm.model,), grace=0.05):
            # Each takes one request.
            await stack.enter_async_context(asked(it, prompt="another"))
            await see(client, lambda document: shows(document, 2))
        await see(client, lambda document: shows(document, 1))
