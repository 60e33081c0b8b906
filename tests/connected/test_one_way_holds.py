"""The network holds the bytes of one way for eight seconds, then brings them all, late and in order.

Both ways are held side by side, each with a process of its own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.connected.live_streams import LiveStreams, asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told
from tests.fakes.swallowing_proxy import WAYS, SwallowingProxy, Way

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

HOLD_SECONDS = 8.0
COUNT = 32
"""Streams of each process."""
QUICK_SECONDS = 0.05
"""Between two pieces of a stream: so many come that a link which nobody acknowledges soon stops at its window."""
FEW = 8
BEGIN_SECONDS = 60.0
BOUND = 5.0
"""Seconds after the release in which every stream has its end, or its answer."""
TYPED = {"unavailable", "bus"}


@dataclass(frozen=True)
class HeldLine:
    """A way through the broker: a gateway and a processor with a flow of their own, one of them behind a proxy."""

    way: Way
    proxy: SwallowingProxy
    url: str
    flow: str

    def streams(self, prefix: str, count: int) -> AbstractAsyncContextManager[LiveStreams]:
        return live_streams(self.url, self.flow, count=count, prefix=f"{prefix}, {self.way}, ")


@asynccontextmanager
async def held_lines(line: Pipeline, held: str) -> AsyncIterator[list[HeldLine]]:
    """One for each way. `guard` is the part behind the proxy."""
    port = int(line.bus.rsplit(":", 1)[1])
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(SwallowingProxy.before(port)) for _ in WAYS]

        async def started(way: Way, proxy: SwallowingProxy) -> HeldLine:
            flow = f"{line.flow}-{way}"
            configuration = line.configuration(flow)
            gateway, _ = await asyncio.gather(
                *(
                    line.start(
                        part,
                        *("--config", configuration),
                        bus=f"pulsar://127.0.0.1:{proxy.port}" if part == held else None,
                    )
                    for part in ("gateway", "text-completion")
                )
            )
            await asked(gateway.url, flow, "before", BEGIN_SECONDS)
            return HeldLine(way, proxy, gateway.url, flow)

        yield await asyncio.gather(*(started(way, proxy) for way, proxy in zip(WAYS, proxies, strict=True)))


@pytest.mark.parametrize("held", ["gateway", "text-completion"])
async def test_bytes_of_one_way_that_come_late(live_model: LiveOpenAi, line: Pipeline, held: str) -> None:
    live_model.finish.set()
    async with held_lines(line, held) as lines:
        live_model.finish.clear()
        await asyncio.gather(*(held_up(live_model, it) for it in lines))
        live_model.finish.set()
        prompts = [f"after {number}" for number in range(FEW)]
        answers = await asyncio.gather(*(asked(it.url, it.flow, prompt, BOUND) for it in lines for prompt in prompts))
    for text in answers:
        told(text, whole=True)


async def held_up(live_model: LiveOpenAi, it: HeldLine) -> None:
    """Streams that were live, and streams that are asked for during the hold."""
    async with it.streams("before", COUNT) as before:
        await before.begun(BEGIN_SECONDS)
        live_model.pace = QUICK_SECONDS
        it.proxy.hold(it.way)
        await asyncio.sleep(HOLD_SECONDS / 2)
        async with it.streams("during", FEW) as during:
            await asyncio.sleep(HOLD_SECONDS / 2)
            it.proxy.release()
            async with asyncio.timeout(BOUND):
                await before.over(BOUND)
                for stream in during.streams:
                    await stream.began.wait()
    assert sum(before.failed.values()) == COUNT
    assert set(before.failed) | set(during.failed) <= TYPED
    for stream in before.streams:
        told(stream.text, whole=False)
        assert len(live_model.of(stream.prompt)) == 1
