"""Processors of one process share a host: one reader, one record of presence and one link to each inbox for all."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.ending_bus import EndingBus
from tests.fakes.recording_bus import RecordingBus
from tests.fakes.refusing_bus import REFUSAL, RefusingBus
from tests.fakes.typed_clients import LlmClient
from tests.until import until
from tests.virtual_time import in_virtual_time
from tests.within import within
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import QUEUE_PROPERTY, HeartbeatTiming, Presence, Route
from tg_base.server import Host, Processor
from tg_base.telemetry.trace import Ids, set_source
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, decode, encode
from tg_schema.errors import BusError, Unavailable
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.1)
ROUTES = tuple(Route(flow, TEXT_COMPLETION, TOPICS.request(flow, "t"), TOPICS.response(flow, "t")) for flow in "ab")
ANOTHER_INBOX = "non-persistent://public/default/tg-inbox-another"


@dataclass
class Shared:
    """A process with a processor of each route, and who asks it."""

    bus: EndingBus
    wire: RecordingBus
    host: Host
    models: list[CountingLlm]
    processors: list[Processor]
    requestor: Requestor


@asynccontextmanager
async def shared() -> AsyncIterator[Shared]:
    wire = RecordingBus(MemoryBus())
    bus, models = EndingBus(wire), [CountingLlm(), CountingLlm()]
    async with Host(bus, TOPICS, timing=QUICK) as host, AsyncExitStack() as stack:
        processors = [
            await stack.enter_async_context(Processor(bus, TOPICS, model, (route,), models=(route.flow,), host=host))
            for model, route in zip(models, ROUTES, strict=True)
        ]
        requestor = await stack.enter_async_context(Requestor(bus, TOPICS, timing=QUICK))
        yield Shared(bus, wire, host, models, processors, requestor)
    await wire.aclose()


async def test_two_models_have_one_reader_and_one_link() -> None:
    async with shared() as it:
        answers = [LlmClient(it.requestor, route).request("", "3") for route in ROUTES]
        assert await asyncio.gather(*answers) == ["0 1 2 ", "0 1 2 "]
        queues = {route.request for route in ROUTES}
        assert sorted(set(it.bus.opened) - queues) == sorted(
            {TOPICS.control(it.host.name), TOPICS.announce, TOPICS.presence, it.requestor._inbox.topic}
        )
        links = {properties["link"] for _, _, properties in it.wire.published if "link" in properties}
        assert len(links) == 1


async def test_each_model_keeps_its_own_state_in_the_one_record() -> None:
    async with shared() as it:
        for model in it.models:
            model.step = asyncio.Semaphore(0)
        request = TextCompletionRequest(prompt="1", streaming=True)
        async with LlmClient(it.requestor, ROUTES[0]).stream(request):
            serving = it.requestor.presence.serving
            await until(lambda: [one.in_flight for one in serving(ROUTES[0].request)] == [1])
            (busy,), (idle,) = serving(ROUTES[0].request), serving(ROUTES[1].request)
            assert (busy.models, idle.models, idle.in_flight) == (("a",), ("b",), 0)

            def count_theirs(requestor: Requestor) -> list[int]:
                return [requestor.presence.count_theirs(each.request) for each in ROUTES]

            await until(lambda: count_theirs(it.requestor) == [0, 0])
            async with Requestor(it.bus, TOPICS, timing=QUICK) as other:
                await until(lambda: count_theirs(other) == [1, 0])


async def test_announcements_side_by_side_lose_nothing() -> None:
    bus = RecordingBus(MemoryBus())
    async with Requestor(bus, TOPICS, timing=QUICK) as requestor, Host(bus, TOPICS, timing=QUICK) as host:
        await host.announce()
        describe = [Presence(f"{host.name}.{flow}", (ROUTES[flow].request,), 1, 0) for flow in range(2)]

        async def open_one(presence: Presence) -> None:
            host.add(presence.processor, lambda: presence)
            await host.announce()

        await asyncio.gather(*map(open_one, describe))
        told = [decode(Presence, body) for topic, body, _ in bus.published if topic == TOPICS.presence and body]
        numbers = [record.number for record in told]
        assert numbers == sorted({*numbers})
        await until(lambda: all(requestor.presence.serving(route.request) for route in ROUTES))
        for presence in describe:
            host.remove(presence.processor)
    await bus.aclose()


async def test_a_requestor_asks_all_processes_once_in_an_interval() -> None:
    bus = RecordingBus(MemoryBus())
    async with Requestor(bus, TOPICS, timing=HeartbeatTiming(interval=60.0)) as requestor:
        asking = [asyncio.create_task(LlmClient(requestor, ROUTES[0]).request("", "1")) for _ in range(20)]
        # Each announcement of anybody wakes them all.
        for number in range(5):
            await bus.publish(TOPICS.presence, encode(Presence("other", (), 1, 0, number=number)), {})
        await until(lambda: requestor.presence.version >= 5)
        asked = [topic for topic, _, _ in bus.published if topic == TOPICS.announce]
        assert len(asked) == 1
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
    await bus.aclose()


async def test_a_processor_leaves_and_the_others_stay() -> None:
    async with shared() as it:
        await it.processors[0].retire()
        await until(lambda: not it.requestor.presence.serving(ROUTES[0].request))
        assert await LlmClient(it.requestor, ROUTES[1]).request("", "2") == "0 1 "
        await until(lambda: it.requestor.presence.is_unserved(ROUTES[0].request))
        with pytest.raises(Unavailable, match="no live processor"):
            await LlmClient(it.requestor, ROUTES[0]).request("", "2")


@in_virtual_time
async def test_presence_is_as_long_for_twelve_requestors_as_for_one() -> None:
    async with shared() as it, AsyncExitStack() as stack:
        for model in it.models:
            model.step = asyncio.Semaphore(0)
        request, queue = TextCompletionRequest(prompt="1", streaming=True), ROUTES[0].request
        sizes = {}
        others = [await stack.enter_async_context(Requestor(it.bus, TOPICS, timing=QUICK)) for _ in range(11)]
        for number, requestor in enumerate((it.requestor, *others), start=1):
            await stack.enter_async_context(LlmClient(requestor, ROUTES[0]).stream(request))
            while it.requestor.presence.serving(queue)[0].in_flight != number:
                await it.requestor.presence.wait(1.0)
            bodies = [body for topic, body, _ in it.wire.published if topic == TOPICS.presence and body]
            sizes[number] = len(bodies[-1])
        # Two digits more: the one of twelve, and what the number of the announcement may have grown by.
        assert sizes[12] - sizes[1] <= 4


async def test_a_processor_that_nobody_would_hear_of_takes_no_request() -> None:
    bus, model = RefusingBus(MemoryBus(), TOPICS.presence), CountingLlm()
    await bus.publish(ROUTES[0].request, encode(TextCompletionRequest(prompt="1")), {"id": "waits"})
    async with Requestor(bus, TOPICS, timing=QUICK) as requestor, Host(bus, TOPICS, timing=QUICK) as host:
        with pytest.raises(BusError, match=REFUSAL):
            await Processor(bus, TOPICS, model, (ROUTES[0],), host=host).__aenter__()
        assert not model.requests
        # While the bus is away, it waits for it. Once it was heard, the next announcement repeats what was refused.
        bus.away = True
        async with Processor(bus, TOPICS, model, (ROUTES[0],), host=host):
            await asyncio.wait_for(model.started.wait(), 30)
            bus.away = False
            bus.refused.clear()
            await until(lambda: host.announce_error is None)
            bus.refused.add(TOPICS.presence)
            async with Processor(bus, TOPICS, CountingLlm(), (ROUTES[1],), host=host):
                bus.refused.clear()
                assert await LlmClient(requestor, ROUTES[1]).request("", "3") == "0 1 2 "


async def test_a_processor_that_is_heard_of_while_it_asks_whether_the_bus_answers_serves() -> None:
    bus, model = RefusingBus(MemoryBus(), TOPICS.presence), CountingLlm()
    bus.pong.clear()

    async def recover() -> None:
        await bus.pinged.wait()
        bus.refused.clear()
        await until(lambda: host.announce_error is None)
        bus.pong.set()

    async with Host(bus, TOPICS, timing=QUICK) as host, Requestor(bus, TOPICS, timing=QUICK) as requestor:
        recovering = asyncio.create_task(recover())
        async with Processor(bus, TOPICS, model, (ROUTES[0],), host=host):
            await recovering
            assert await LlmClient(requestor, ROUTES[0]).request("", "3") == "0 1 2 "


async def test_a_request_that_comes_as_its_process_ends_leaves_nothing_running() -> None:
    before = asyncio.all_tasks()
    async with aclosing(MemoryBus()) as bus, Host(bus, TOPICS, timing=QUICK) as host:
        headers = {"id": "a", "reply": ANOTHER_INBOX, QUEUE_PROPERTY: ROUTES[0].request}
        await bus.publish(TOPICS.control(host.name), b"", headers)
    # What has ended is still listed until the loop's next turn.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_the_second_of_two_processes_with_one_inbox_ends_with_a_sentence() -> None:
    queues = tuple(route.request for route in ROUTES)

    async def come_second(bus: Bus) -> None:
        async with Requestor(bus, TOPICS, timing=QUICK, queues=queues):
            await asyncio.Event().wait()

    async with shared() as it:
        # The names of inboxes have 16 bytes; those of births have fewer.
        set_source(Ids(lambda size: bytes(size) if size == 16 else os.urandom(size)))
        try:
            async with Requestor(it.bus, TOPICS, timing=QUICK, queues=queues) as first:
                await until(lambda: first.presence.serving(queues[0]))
                with pytest.raises(BusError, match=r"another process had the inbox .*-0+ first.*: start this one"):
                    await within(10, come_second(it.bus))
                assert await LlmClient(first, ROUTES[0]).request("", "2") == "0 1 "
        finally:
            set_source(Ids())
