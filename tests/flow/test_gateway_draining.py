"""A gateway that leaves while requests are on their way: what is still read, and what the bus has not taken yet."""

import asyncio
import json

from tests.fakes.held_bus import HeldBus
from tests.flow.open_gateway import TEXTS, Opened, open_gateway
from tests.flow.raw_http import raw_connection
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig

PATH = "/api/v1/text-completion"


async def ask(it: Opened) -> dict[str, object]:
    async with it.http.post(PATH, json={"prompt": "2"}) as response:
        answer: dict[str, object] = await response.json()
    return answer


@in_virtual_time
async def test_what_the_bus_has_not_taken_yet_may_finish() -> None:
    bus = HeldBus(MemoryBus())
    bus.held.add(TEXTS[0].request)
    async with open_gateway(GatewayConfig(port=0, drain=60), bus=bus) as it:
        asking = asyncio.create_task(ask(it))
        await bus.waiting.wait()
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        # Less than the bus may take, and more than handlers get at the end.
        assert await asyncio.wait([leaving], timeout=4) == (set(), {leaving})
        bus.open.set()
        assert (await asking)["response"] == "0 1 "
        await leaving


@in_virtual_time
async def test_what_the_bus_takes_when_the_time_is_over_ends_with_an_error() -> None:
    bus = HeldBus(MemoryBus())
    bus.held.add(TEXTS[0].request)
    async with open_gateway(GatewayConfig(port=0, drain=0), bus=bus) as it:
        it.llm.step = asyncio.Semaphore(0)
        asking = asyncio.create_task(ask(it))
        await bus.waiting.wait()
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        await asyncio.wait([leaving], timeout=0.5)
        bus.open.set()
        assert "shutting down" in str((await asking)["error"])
        await leaving


@in_virtual_time
async def test_a_gateway_that_hands_over_answers_what_it_still_reads() -> None:
    """A large body takes its time."""
    sent = json.dumps({"prompt": "2"}).encode()
    async with open_gateway(GatewayConfig(port=0, drain=60)) as it, raw_connection(it.address) as raw:
        raw.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent[:5])
        await until(lambda: it.gateway._relay.reading)
        it.gateway._shared.handing_over = True
        leaving = asyncio.create_task(it.gateway.__aexit__(None, None, None))
        assert await asyncio.wait([leaving], timeout=20) == (set(), {leaving})
        raw.send(sent[5:])
        assert b'"response":"0 1 "' in await raw.rest()
        await leaving
