"""Requests of 10 MB and more over the real broker: they arrive whole, side by side, and elsewhere if they must."""

import asyncio
from uuid import uuid4

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.topics import Topics

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TOPICS = Topics()
LARGE_SYSTEM = "é" * 5_000_000
Completions = Route[TextCompletionRequest, TextCompletionResponse]


@pytest.fixture
def route() -> Completions:
    flow = uuid4().hex
    return Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))


async def test_large_requests_arrive_whole_side_by_side(pulsar: PulsarServer, route: Completions) -> None:
    llm = CountingLlm()
    async with (
        open_bus(pulsar.service_url) as asking,
        open_bus(pulsar.service_url) as serving,
        Processor(serving, TOPICS, llm, (route,)),
        Requestor(asking, TOPICS) as requestor,
    ):
        client = LlmClient(requestor, route)
        assert await client.request(LARGE_SYSTEM, "3") == "0 1 2 "
        answers = await asyncio.gather(*(client.request(LARGE_SYSTEM, "3") for _ in range(3)))
    assert answers == ["0 1 2 "] * 3
    assert [request.system == LARGE_SYSTEM for request in llm.requests] == [True] * 4


async def test_a_processor_that_is_cut_off_while_parts_are_sent_is_replaced(
    pulsar: PulsarServer, route: Completions
) -> None:
    dead, alive = CountingLlm(), CountingLlm()
    async with open_bus(pulsar.service_url) as asking, open_bus(pulsar.service_url) as serving:
        dying = NetworkBus(serving)
        async with Requestor(asking, TOPICS) as requestor, Processor(dying, TOPICS, dead, (route,), grace=0.0) as first:
            request = TextCompletionRequest(LARGE_SYSTEM, "3", streaming=True)
            async with LlmClient(requestor, route).stream(request) as responses:
                while not first.host.bodies._bodies:  # noqa: ASYNC110 - nothing tells when
                    await asyncio.sleep(0.001)
                dying.sent.clear()
                dying.received.clear()
                async with Processor(serving, TOPICS, alive, (route,)):
                    assert "".join([record.response or "" async for record in responses]) == "0 1 2 "
            dying.sent.set()
            dying.received.set()
    assert not dead.requests
    assert [request.system == LARGE_SYSTEM for request in alive.requests] == [True]
