"""Processors with different models under one flow: no answer is by turns another's, and an edit loses no request."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import QUICK
from tests.virtual_time import in_virtual_time
from tests.within import within
from tg_base.bus import Bus, open_bus
from tg_base.client import Requestor
from tg_base.client.admission import MODEL_CHANGE_SECONDS
from tg_base.config import Config, TextCompletionConfig
from tg_base.server import Processor
from tg_base.telemetry import new_id
from tg_schema import TextCompletionRequest
from tg_schema.errors import Unavailable

ASKED = TextCompletionRequest(prompt="1")


class World:
    """One flow, on topics of its own."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.config = Config(flows={f"f-{new_id()}": {"text-completion": TextCompletionConfig(model="m1")}})
        self.routes = self.config.routes("text-completion")

    def processor(self, *models: str) -> AbstractAsyncContextManager[Processor]:
        return Processor(
            self.bus, self.config.topics, CountingLlm(), self.routes, models=models, timing=QUICK, grace=0.05
        )

    def requestor(self) -> AbstractAsyncContextManager[Requestor]:
        return Requestor(self.bus, self.config.topics, timing=QUICK, queues=(self.routes[0].request,))

    async def ask(self, asks: Requestor) -> None:
        async with asks.stream(self.routes[0], ASKED, timeout=30) as records:
            assert [record async for record in records][-1].end_of_stream

    async def until_known(self, asks: Requestor, count: int) -> None:
        async with asyncio.timeout(30):
            while len(asks.presence.serving(self.routes[0].request)) != count:
                await asks.presence.wait(1)


async def test_a_request_waits_until_an_edit_has_reached_all_processors(bus: Bus) -> None:
    it = World(bus)
    async with it.requestor() as asks, it.processor("m2"):
        async with it.processor("m1"):
            await it.until_known(asks, 2)
            answering = asyncio.ensure_future(it.ask(asks))
            await asyncio.sleep(0.05)
            assert not answering.done()
        await within(30, answering)


@in_virtual_time
async def test_two_models_under_one_flow_are_refused_by_name_until_one_is_left() -> None:
    async with open_bus("memory://") as bus:
        it = World(bus)
        now = asyncio.get_running_loop().time
        async with it.requestor() as asks, it.processor("m2"), it.processor("m2"):
            async with it.processor("m1"):
                await it.until_known(asks, 3)
                began = now()
                for _ in range(3):
                    with pytest.raises(Unavailable, match=r"different models, m1 and m2, .* stop those of one"):
                        await it.ask(asks)
                # Nobody waits once it has been so for longer.
                assert now() - began <= MODEL_CHANGE_SECONDS + 1
            await it.until_known(asks, 2)
            await it.ask(asks)


async def test_processors_of_one_model_and_of_none_are_no_mixture() -> None:
    async with open_bus("memory://") as bus:
        it = World(bus)
        async with it.requestor() as asks, it.processor("m", "n"), it.processor("m", "n"), it.processor():
            await it.until_known(asks, 3)
            await it.ask(asks)
