"""The clock on the wall jumps by a day, forth and back: streams run on, limits and liveness do not notice."""

import asyncio
import time
from contextlib import aclosing

import pytest

from tests.fakes.network_bus import NetworkBus
from tests.flow.open_gateway import QUICK, open_gateway
from tg_base.bus.memory import MemoryBus

PATH = "api/v1/text-completion"
DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_jump_in_mid_stream(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Over a network: on a bus inside one process nobody is ever taken for dead."""
    wall = time.time
    async with aclosing(MemoryBus()) as bus, open_gateway(timing=QUICK, bus=NetworkBus(bus)) as it:
        it.llm.step = asyncio.Semaphore(1)
        async with it.http.post(PATH, json={"prompt": "2", "streaming": True}) as response:
            assert b'"0 "' in await response.content.readuntil(b"\n\n")
            monkeypatch.setattr(time, "time", lambda: wall() + jump)
            await asyncio.sleep(2 * QUICK.dead_after)
            it.llm.step.release()
            rest = await response.read()
        assert b'"1 "' in rest
        assert b'"end_of_stream":true' in rest
        it.llm.step = None
        async with it.http.post(PATH, json={"prompt": "2"}) as response:
            assert (await response.json())["response"] == "0 1 "
        async with it.http.get("ready") as ready:
            assert ready.status == 200
