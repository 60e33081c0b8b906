"""Work queue -> processor: what is delivered twice is not paid twice, and what a silent one holds goes to another."""

import asyncio

import pytest

from tests.fakes.counting_llm import CountingLlm, release
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.protocol.request_headers import FRESH_SECONDS
from tg_base.runtime import MAX_QUICK_BYTES
from tg_base.server import Processor
from tg_base.server.processor import MAX_UNCONFIRMED_REQUESTS
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.2)
LEFT_REQUESTS = 20
LIVE_REQUESTS = 8
MANY_REQUESTS = 1000
ASKED = encode(TextCompletionRequest(prompt="2", streaming=True))


Completions = Route[TextCompletionRequest, TextCompletionResponse]
ROUTE: Completions = Route("tg", TEXT_COMPLETION, TOPICS.request("tg", "t"), TOPICS.response("tg", "t"))


@pytest.fixture
def timing(bus: Bus) -> HeartbeatTiming:
    """Quick, but not over a broker, which may stand still by itself for longer than a quick death takes."""
    return QUICK if bus.in_process else HeartbeatTiming()


def count_taken() -> int:
    """Requests that processors of this loop have from the bus; one that was queued for long holds no slot at first."""
    return sum(task.get_name() == "request" for task in asyncio.all_tasks())


async def test_a_request_that_nobody_waits_for_any_more_is_not_begun(
    bus: Bus, timing: HeartbeatTiming, route: Completions
) -> None:
    llm = CountingLlm()
    async with Requestor(bus, TOPICS, timing=HeartbeatTiming(interval=5)) as requestor:
        old = {"id": "answered long ago", "attempt": "1", "reply": requestor._inbox.topic, "deadline": "60000"}
        await bus.publish(route.request, ASKED, old)
        await asyncio.sleep(2 * FRESH_SECONDS)
        async with Processor(bus, TOPICS, llm, (route,), timing=timing):
            assert await LlmClient(requestor, route).request("", "3") == "0 1 2 "
    assert [request.prompt for request in llm.requests] == ["3"]


async def test_a_request_that_a_silent_processor_holds_goes_to_a_free_one(
    bus: Bus, timing: HeartbeatTiming, route: Completions
) -> None:
    llm = CountingLlm()
    llm.capacity, llm.step = 1, asyncio.Semaphore(0)
    request = TextCompletionRequest(prompt="3", streaming=True)
    async with (
        Requestor(bus, TOPICS, timing=timing) as requestor,
        Processor(bus, TOPICS, llm, (route,), timing=timing),
    ):
        await until(lambda: requestor.presence.serving(route.request))
        async with LlmClient(requestor, route).stream(request):
            await llm.started.wait()
            async with (
                bus.subscribe(route.request, "tg-text-completion", prefetch=0) as silent,
                LlmClient(requestor, route).stream(request) as responses,
            ):
                held = await anext(silent)
                assert held.properties["attempt"] == "1"
                release(llm.step, 6)
                assert "".join([record.response or "" async for record in responses]) == "0 1 2 "


async def test_what_a_processor_that_leaves_has_not_read_yet_goes_to_another_one_alone(
    bus: Bus, timing: HeartbeatTiming, route: Completions
) -> None:
    first, second = CountingLlm(), CountingLlm()
    large = TextCompletionRequest(prompt="3", system="x" * 2 * MAX_QUICK_BYTES, streaming=True)
    async with Requestor(bus, TOPICS, timing=timing) as requestor:
        # Each large one is read in its turn.
        async with Processor(bus, TOPICS, first, (route,), timing=timing) as leaving, leaving._reading:
            await until(lambda: requestor.presence.serving(route.request))
            if bus.in_process:
                # It knows the requestor's clock, and what comes soon is not confirmed: that would hide a second run.
                await until(lambda: leaving.host.publishers.delays(requestor._inbox.topic, 0.0)[0] is not None)
            asking = asyncio.create_task(LlmClient(requestor, route).request(large.system or "", "3"))
            await until(count_taken)
            async with Processor(bus, TOPICS, second, (route,), timing=timing):
                retiring = asyncio.create_task(leaving.retire())
                assert await asking == "0 1 2 "
                await retiring
        await until(lambda: not count_taken())
    assert (len(first.requests), len(second.requests)) == (0, 1)


@pytest.mark.parametrize("left", [LEFT_REQUESTS, 2 * MAX_UNCONFIRMED_REQUESTS])
@in_virtual_time
async def test_what_a_dead_requestor_left_holds_up_nobody(left: int) -> None:
    bus, llm, forever = MemoryBus(), CountingLlm(), HeartbeatTiming(interval=600)
    llm.capacity = 1
    for number in range(left):
        await _leave(bus, TOPICS.inbox("gone"), number)
    network = NetworkBus(bus)
    network.delay = 0.0005
    async with (
        Processor(network, TOPICS, llm, (ROUTE,), timing=forever, grace=0.0),
        Requestor(NetworkBus(bus), TOPICS, timing=forever) as requestor,
    ):
        asked = (LlmClient(requestor, ROUTE).request("", "3", timeout=60) for _ in range(LIVE_REQUESTS))
        assert await asyncio.gather(*asked) == ["0 1 2 "] * LIVE_REQUESTS
    assert [request.prompt for request in llm.requests] == ["3"] * LIVE_REQUESTS
    await bus.aclose()


@in_virtual_time
async def test_a_dead_requestor_s_queue_does_not_prolong_its_generations() -> None:
    bus, llm, loop = MemoryBus(), CountingLlm(), asyncio.get_running_loop()
    llm.step = asyncio.Semaphore(0)
    mortal = MortalBus(bus)
    async with (
        Processor(NetworkBus(bus), TOPICS, llm, (ROUTE,), grace=0.0) as processor,
        Requestor(mortal, TOPICS) as requestor,
        LlmClient(requestor, ROUTE).stream(TextCompletionRequest(prompt="9", streaming=True)),
    ):
        await llm.started.wait()
        mortal.kill()
        killed_at = loop.time()
        for number in range(LEFT_REQUESTS):
            await _leave(bus, requestor._inbox.topic, number)
            await asyncio.sleep(0.5)
            if llm.stopped.is_set():
                break
        assert loop.time() - killed_at <= 5
        await until(lambda: not processor.host.running)
    assert len(llm.requests) == 1
    await bus.aclose()


@in_virtual_time
async def test_a_long_queue_of_a_dead_requestor_is_over_soon() -> None:
    bus, llm, loop = MemoryBus(), CountingLlm(), asyncio.get_running_loop()
    llm.capacity = 1
    for number in range(MANY_REQUESTS):
        await _leave(bus, TOPICS.inbox("gone"), number)
    network = NetworkBus(bus)
    network.delay = 0.0005
    async with Processor(network, TOPICS, llm, (ROUTE,), grace=0.0) as processor:
        began_at = loop.time()
        await until(lambda: processor._taken == MANY_REQUESTS and not processor._running)
        # Its first requests get the silence that means death, the others no more than a few looks.
        assert loop.time() - began_at <= 5
    assert llm.requests == []
    await bus.aclose()


async def _leave(bus: Bus, inbox: str, number: int) -> None:
    await bus.publish(ROUTE.request, ASKED, {"id": f"left-{number}", "attempt": "1", "reply": inbox})
