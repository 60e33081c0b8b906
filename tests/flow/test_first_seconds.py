"""A gateway that has just started -> requests that are read by what their model announces: it has not yet."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, QUEUES, QUICK, TEXTS, open_gateway
from tests.observed_calls import observe_calls
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.server import Processor
from tg_gateway.app import Gateway

ASKED = {
    "/v1/completions": {"model": "counting", "prompt": "3"},
    "/generate": {"inputs": "3"},
    "/invocations": {"inputs": "3"},
    "/mlc/v1/chat/completions": {"model": "counting", "messages": [{"role": "user", "content": "3"}]},
}


class AskedBus(MemoryBus):
    """Tells when somebody asks who serves."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        if topic == CONFIG.topics.announce:
            self.asked.set()


@pytest.mark.parametrize("path", ASKED)
async def test_a_request_that_comes_before_its_model_is_known_is_read_by_what_the_model_can(path: str) -> None:
    bus, llm = AskedBus(), CountingLlm()
    async with (
        Requestor(bus, CONFIG.topics, timing=QUICK, queues=QUEUES) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        bus.asked.clear()
        answer: asyncio.Task[Any] = asyncio.create_task(_post(http, path))
        await bus.asked.wait()
        async with Processor(bus, CONFIG.topics, llm, TEXTS, models=(llm.model,), timing=QUICK, grace=0.05):
            status, text = await answer
    await bus.aclose()
    assert status == 200, text
    assert "0 1 2" in text
    assert [request.raw for request in llm.requests] == [False]


async def test_a_request_whose_model_is_known_begins_no_wait() -> None:
    waits: list[object] = []
    async with open_gateway() as it:
        assert (await _post(it.http, "/generate"))[0] == 200
        with observe_calls(Requestor.until_served, waits.append):
            assert (await _post(it.http, "/generate"))[0] == 200
    assert not waits


async def _post(http: ClientSession, path: str) -> tuple[int, str]:
    async with http.post(path, json=ASKED[path]) as response:
        return response.status, await response.text()
