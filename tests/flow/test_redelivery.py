"""Work queue -> processor: what is delivered twice is not paid twice, and what a silent one holds goes to another."""

import asyncio
from uuid import uuid4

import pytest

from tests.fakes.counting_llm import CountingLlm
from tg_base.bus.api import Bus
from tg_base.call import FRESH
from tg_base.liveness import Liveness
from tg_base.llm_client import LlmClient
from tg_base.processor import Processor
from tg_base.requestor import Requestor
from tg_base.route import Route
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.codec import encode
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = Liveness(beat=0.2)
ASKED = encode(TextCompletionRequest(prompt="2", streaming=True))


Completions = Route[TextCompletionRequest, TextCompletionResponse]


@pytest.fixture
def route() -> Completions:
    flow = uuid4().hex
    return Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t"))


async def test_a_request_that_nobody_waits_for_any_more_is_not_begun(bus: Bus, route: Completions) -> None:
    llm = CountingLlm()
    async with Requestor(bus, TOPICS, liveness=Liveness(beat=5)) as requestor:
        old = {"id": "answered long ago", "attempt": "1", "reply": requestor._inbox.topic, "deadline": "60000"}
        await bus.publish(route.request, ASKED, old)
        await asyncio.sleep(2 * FRESH)
        async with Processor(bus, TOPICS, llm, (route,), liveness=QUICK):
            assert await LlmClient(requestor, route).request("", "3") == "0 1 2 "
    assert [request.prompt for request in llm.requests] == ["3"]


async def test_a_request_that_a_silent_processor_holds_goes_to_a_free_one(bus: Bus, route: Completions) -> None:
    async with (
        Requestor(bus, TOPICS, liveness=QUICK) as requestor,
        bus.subscribe(route.request, "tg-text-completion", prefetch=0) as silent,
    ):
        request = TextCompletionRequest(prompt="3", streaming=True)
        async with LlmClient(requestor, route).stream(request) as responses:
            held = await anext(silent)
            assert held.properties["attempt"] == "1"
            async with Processor(bus, TOPICS, CountingLlm(), (route,), liveness=QUICK):
                assert "".join([record.response or "" async for record in responses]) == "0 1 2 "
