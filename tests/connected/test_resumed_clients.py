"""The SDK and a command go on by themselves over a real broker: cut at any byte, and their gateway killed."""

import asyncio
import random
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from tests.connected.pipeline import Part, Pipeline
from tests.connected.test_responses_made_apart import until_known
from tests.fakes.cutting_proxy import CuttingProxy
from tests.fakes.live_openai import PIECE, LiveOpenAi, told
from tests.flow.command import ended, started
from tests.until import until
from tg_client import TgClient

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

STREAMS = 6
CUTS = 8


def port_of(gateway: Part) -> int:
    """Where it listens."""
    port = urlsplit(gateway.url).port
    assert port is not None
    return port


async def test_a_killed_gateway_and_cuts_leave_one_text_of_one_call(live_model: LiveOpenAi, line: Pipeline) -> None:
    """Half of the streams are read over WebSockets, and one more by a command; a process of its own makes them."""
    await asyncio.gather(line.start("jobs"), line.start("text-completion"))
    one, other = await asyncio.gather(line.start("gateway"), line.start("gateway"))
    await asyncio.gather(*(until_known(gateway, line.flow) for gateway in (one, other)))
    texts = [""] * STREAMS

    def choose() -> int:
        # All begin at the gateway that is killed.
        return port_of(one) if one.alive else port_of(other)

    async with AsyncExitStack() as stack:
        # The first one comes before the streams have the text at which their gateway is killed.
        cuts = iter([random.randrange(bound) for bound in (50, *[2000] * (CUTS - 1))])
        proxy = await stack.enter_async_context(CuttingProxy.before(choose, cuts))
        client = await stack.enter_async_context(TgClient(proxy.url, token="", retries=100))
        # A socket that is cut is not opened again: each has one stream.
        sockets = [await stack.enter_async_context(client.socket()) for _ in range(STREAMS // 2)]

        async def read(number: int) -> None:
            flow = (sockets[number // 2] if number % 2 else client).flow(line.flow)
            async with flow.text_completion_stream("", f"p{number}", keep="10m") as records:
                async for record in records:
                    texts[number] += record.response or ""

        asked = ("tg-invoke-llm", "-f", line.flow, "--keep", "10m", "-u", proxy.url, "", "command")
        process = await stack.enter_async_context(started(*asked))
        reading = [asyncio.create_task(read(number)) for number in range(STREAMS)]
        await until(lambda: all(len(PIECE.findall(text)) >= 2 for text in texts), within=60)
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readuntil(b">"), 60)
        one.process.kill()
        assert await one.stopped(15) == -9
        before = list(texts)
        await until(lambda: all(len(text) > len(each) for text, each in zip(texts, before, strict=True)), within=60)
        live_model.finish.set()
        await asyncio.gather(*reading)
        done = await ended(process)
        assert done.code == 0, done.err
    for text in [*texts, said.decode() + done.out.strip()]:
        told(text, whole=True)
    prompts = [*(f"p{number}" for number in range(STREAMS)), "command"]
    assert [len(live_model.of(prompt)) for prompt in prompts] == [1] * len(prompts)
    assert proxy.cut >= 1
