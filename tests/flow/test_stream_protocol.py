"""Requestor and processor on a real bus: order, ends, cancels, deadlines, deaths, nonsense, and who overtakes whom."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from tests.fakes.counting_llm import CountingLlm, SteppedLlm, release
from tests.fakes.mortal_bus import MortalBus
from tests.fakes.network_bus import NetworkBus
from tests.fakes.typed_clients import LlmClient
from tests.flow.patient_timing import PatientTiming
from tests.until import until
from tests.within import within
from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.protocol import HeartbeatTiming, Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, decode
from tg_schema.errors import Timeout, Unavailable
from tg_schema.topics import Topics

TOPICS = Topics()
QUICK = HeartbeatTiming(interval=0.1)
DEADLINE = 60.0
Completions = Route[TextCompletionRequest, TextCompletionResponse]


@pytest.fixture
def timing(bus: Bus) -> HeartbeatTiming:
    """Quick, but not over a broker, which may stand still by itself for longer than a quick death takes."""
    return timing_over(bus)


def timing_over(bus: Bus) -> HeartbeatTiming:
    return QUICK if bus.in_process else HeartbeatTiming()


@dataclass
class Pipeline:
    bus: Bus
    llm: CountingLlm
    client: LlmClient
    processor: Processor
    requestor: Requestor

    async def until_stopped(self) -> None:
        """Within a second; where a broker may stand still by itself, in any case."""
        await within(1 if self.bus.in_process else 20, self.llm.stopped.wait())


@asynccontextmanager
async def pipeline(
    bus: Bus, route: Completions, llm: CountingLlm, timing: HeartbeatTiming | None = None
) -> AsyncIterator[Pipeline]:
    if timing is None:
        timing = timing_over(bus)
    async with (
        Processor(bus, TOPICS, llm, (route,), timing=timing, grace=0.1) as processor,
        Requestor(bus, TOPICS, timing=timing) as requestor,
    ):
        await until(lambda: requestor.presence.serving(route.request))
        yield Pipeline(bus, llm, LlmClient(requestor, route), processor, requestor)


async def test_every_chunk_leaves_at_once_and_usage_stands_on_the_last(bus: Bus, route: Completions) -> None:
    async with pipeline(bus, route, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        request = TextCompletionRequest(prompt="3", streaming=True)
        async with it.client.stream(request) as responses:
            for number in range(2):
                it.llm.step.release()
                record = await anext(responses)
                assert (record.response, record.end_of_stream, record.out_token) == (f"{number} ", False, None)
                assert it.llm.generated == number + 1
            it.llm.step.release()
            rest = [record async for record in responses]
            last = rest[-1]
            assert "".join(record.response or "" for record in rest) == "2 "
            assert (last.in_token, last.out_token) == (7, 3)
            assert last.end_of_stream
            assert last.finish_reason == "stop"


async def test_a_thousand_streams_side_by_side_keep_their_words(bus: Bus, route: Completions) -> None:
    async with pipeline(bus, route, CountingLlm(), HeartbeatTiming()) as it:
        expected = "".join(f"{number} " for number in range(50))
        answers = await asyncio.gather(*(it.client.request("", "50", streaming=True) for _ in range(1000)))
        assert set(answers) == {expected}


async def test_a_request_cancelled_in_the_queue_is_not_worked_on(bus: Bus, route: Completions) -> None:
    llm = CountingLlm()
    llm.capacity = 1
    llm.step = asyncio.Semaphore(0)
    async with pipeline(bus, route, llm) as it, bus.subscribe(TOPICS.control(it.processor.name), None) as controls:
        async with it.client.stream(TextCompletionRequest(prompt="1")) as first:
            await llm.started.wait()
            async with it.client.stream(TextCompletionRequest(prompt="1000")):
                pass
            while b'"cancel"' not in (await anext(controls)).body:
                pass
            llm.step.release()
            assert [record.response async for record in first] == ["0 "]
        third = asyncio.ensure_future(it.client.request("", "3"))
        release(llm.step, 3)
        assert await third == "0 1 2 "
        assert llm.generated == 4


async def test_the_deadline_ends_both_ends(bus: Bus, route: Completions) -> None:
    async with pipeline(bus, route, CountingLlm()) as it:
        it.llm.step = asyncio.Semaphore(0)
        # A slow machine gets more time, until the deadline comes after the beginning.
        for seconds in (0.1, 1.0, 10.0):
            with pytest.raises(Timeout, match=rf"no complete answer within {seconds:g} s|deadline"):
                await it.client.request("", "1", timeout=seconds)
            if it.llm.started.is_set():
                break
        await it.until_stopped()


async def test_a_drained_processor_tells_its_requestors(bus: Bus, timing: HeartbeatTiming, route: Completions) -> None:
    llm = SteppedLlm(steps=1)
    async with Requestor(bus, TOPICS, timing=timing) as requestor:
        client = LlmClient(requestor, route)
        async with Processor(bus, TOPICS, llm, (route,), timing=timing, grace=0.01):
            await until(lambda: requestor.presence.serving(route.request))
            pieces = client.request_stream("", "5")
            assert await anext(pieces) == "0 "
        with pytest.raises(Unavailable, match="shuts down"):
            await anext(pieces)


async def test_nobody_serves(bus: Bus, timing: HeartbeatTiming, route: Completions) -> None:
    async with Requestor(bus, TOPICS, timing=timing) as requestor:
        with pytest.raises(Unavailable, match="no live processor serves text-completion of flow"):
            await asyncio.wait_for(LlmClient(requestor, route).request("", "1"), DEADLINE)


async def test_a_request_waits_for_a_processor_that_comes_soon(
    bus: Bus, timing: HeartbeatTiming, route: Completions
) -> None:
    async with Requestor(bus, TOPICS, timing=HeartbeatTiming(interval=5)) as requestor:
        asked = asyncio.ensure_future(LlmClient(requestor, route).request("", "2"))
        await asyncio.sleep(0)
        async with Processor(bus, TOPICS, CountingLlm(), (route,), timing=timing):
            assert await asked == "0 1 "


async def test_a_dead_requestor_stops_its_generations(bus: Bus, timing: HeartbeatTiming, route: Completions) -> None:
    llm = SteppedLlm(steps=1)
    mortal = MortalBus(bus)
    async with (
        Processor(MortalBus(bus), TOPICS, llm, (route,), timing=timing, grace=0.01),
        Requestor(mortal, TOPICS, timing=timing) as requestor,
    ):
        await until(lambda: requestor.presence.serving(route.request))
        async with LlmClient(requestor, route).stream(TextCompletionRequest(prompt="9", streaming=True)):
            await llm.started.wait()
            mortal.kill()
            await asyncio.wait_for(llm.stopped.wait(), DEADLINE)
        assert llm.generated <= 1


async def test_a_plain_peer_gets_its_answer_on_the_fixed_topic(
    bus: Bus, timing: HeartbeatTiming, route: Completions
) -> None:
    async with (
        bus.subscribe(route.response, None) as responses,
        Processor(bus, TOPICS, CountingLlm(), (route,), timing=timing),
    ):
        body = b'{"system":"s","prompt":"2","streaming":true,"response_format":null,"operation":"completion"}'
        await bus.publish(route.request, body, {"id": "peer-1"})
        texts = []
        while True:
            delivery = await anext(responses)
            record = decode(TextCompletionResponse, delivery.body)
            assert delivery.properties["id"] == "peer-1"
            assert b'"error":null' in delivery.body
            texts.append(record.response)
            if record.end_of_stream:
                break
        assert texts == ["0 ", "1 ", ""]


async def test_our_client_uses_a_plain_processor(bus: Bus, timing: HeartbeatTiming, route: Completions) -> None:
    plain = Route("tg", TEXT_COMPLETION, route.request, route.response, plain=True)

    async def serve() -> None:
        async with bus.subscribe(plain.request, "theirs") as requests:
            delivery = await anext(requests)
            only = {"id": delivery.properties["id"]}
            await bus.publish(plain.response, b'{"response":"a ","end_of_stream":false,"error":null}', only)
            await bus.publish(plain.response, b'{"response":"b","end_of_stream":true,"error":null,"in_token":3}', only)

    async with (
        Requestor(bus, TOPICS, timing=timing) as requestor,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(serve())
        assert await LlmClient(requestor, plain).request("", "x", streaming=True) == "a b"


UNREADABLE = (b"", b"\xff\x00", b"[" * 100_000, b'{"prompt": 7}', b"null", b"[]", b'{"prompt": "'.ljust(2_000_000))


@pytest.mark.parametrize("body", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_poison_goes_to_the_dead_letters_and_its_sender_hears(bus: Bus, route: Completions, body: bytes) -> None:
    async with (
        bus.subscribe(TOPICS.dead_letter(route.request), None) as dead,
        bus.subscribe(route.response, None) as responses,
        pipeline(bus, route, CountingLlm()) as it,
    ):
        await bus.publish(route.request, body, {"id": "bad"})
        assert (await anext(dead)).body == body
        answer = decode(TextCompletionResponse, (await anext(responses)).body)
        assert answer.end_of_stream
        assert answer.error is not None
        assert answer.error.type == "bad-request"
        assert await it.client.request("", "1") == "0 "


async def test_a_stalled_process_takes_nobody_for_dead(bus: Bus, route: Completions) -> None:
    """Over a network: on a bus inside one process nobody is ever taken for dead."""
    llm = CountingLlm()
    async with pipeline(NetworkBus(bus), route, llm) as it:
        llm.step = asyncio.Semaphore(1)
        async with it.client.stream(TextCompletionRequest(prompt="2", streaming=True)) as responses:
            assert (await anext(responses)).response == "0 "
            time.sleep(3 * QUICK.dead_after)  # noqa: ASYNC251 - the stall is the point
            await asyncio.sleep(2 * QUICK.interval)
            llm.step.release()
            assert "".join([record.response or "" async for record in responses]) == "1 "


async def test_a_processor_that_was_taken_for_dead_is_heard_again(bus: Bus, route: Completions) -> None:
    soon = 5.0 if bus.in_process else DEADLINE
    async with pipeline(bus, route, CountingLlm()) as it:
        for _ in range(3):
            for _ in range(70):
                assert await it.client.request("", "3", streaming=True) == "0 1 2 "
            it.requestor._inbox.forget({it.processor.name})
            assert await it.client.request("", "3", timeout=soon) == "0 1 2 "


async def test_tokens_are_counted_also_of_a_stream_that_was_left(bus: Bus, route: Completions) -> None:
    llm = CountingLlm(model=f"counted-{route.flow}")
    async with pipeline(bus, route, llm) as it:
        llm.step = asyncio.Semaphore(2)
        async with it.client.stream(TextCompletionRequest(prompt="9", streaming=True)) as responses:
            seen = ""
            while seen != "0 1 ":
                seen += (await anext(responses)).response or ""
    assert REGISTRY.get_sample_value("tg_tokens_total", {"model": llm.model, "direction": "out"}) == 2


OWN_TOPICS = Topics("tg/notify")
"""Not where other tests hear presence."""
OFTEN = PatientTiming(0.2)
HUGE = "9" * 5000
BODIES = (
    b"", b"\x00\xff\xfe", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"x" * 1_000_000,
    b'[["s",1,true,"x"]]', b'[["s",1,false,null],7]', f'[["s",{HUGE},false]]'.encode(),
    b'{"type":"heartbeat","inbox":"i","acks":{"l":-5}}', b'{"type":"nack","inbox":"i","link":"l","first":-1}',
    b'{"type":"cancel","streams":[["s",1]],"ttl":1e308}', b'{"type":"cancel","streams":[[]],"ttl":1}',
    b'{"type":"confirmed","key":["s",1]}', b'{"type":"nope"}',
    b'{"processor":"p","queues":["q"],"capacity":-1,"in_flight":-1,"links":{"i":["l",-7]}}',
    f'{{"processor":"{"p" * 10_000}","queues":[],"capacity":1,"in_flight":{HUGE}}}'.encode(),
)  # fmt: skip
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"id": ""},
    {"id": "x" * 10_000, "reply": "no topic at all", "deadline": "soon", "attempt": "nan"},
    {"id": "x", "attempt": HUGE, "deadline": "-1"},
    {"processor": "a b/../c\r\n", "link": "l", "seq": "0"},
    {"processor": "p", "link": "l", "seq": HUGE},
    {"processor": "p", "link": "l", "seq": "-1"},
)


@pytest.mark.parametrize("kind", ["request", "response", "inbox", "control", "announce", "presence"])
async def test_nonsense_disturbs_nobody(bus: Bus, kind: str) -> None:
    flow, service = uuid4().hex, TEXT_COMPLETION.name
    route = Route(flow, TEXT_COMPLETION, OWN_TOPICS.request(flow, service), OWN_TOPICS.response(flow, service))
    async with (
        Processor(bus, OWN_TOPICS, CountingLlm(), (route,), timing=OFTEN) as processor,
        Requestor(bus, OWN_TOPICS, timing=OFTEN) as requestor,
    ):
        topic = {
            "request": route.request,
            "response": route.response,
            "inbox": requestor._inbox.topic,
            "control": OWN_TOPICS.control(processor.name),
            "announce": OWN_TOPICS.announce,
            "presence": OWN_TOPICS.presence,
        }[kind]
        client = LlmClient(requestor, route)
        assert await client.request("", "3") == "0 1 2 "
        for properties in PROPERTIES:
            for body in BODIES:
                await bus.publish(topic, body, properties)
            assert await client.request("", "3", streaming=True, timeout=20) == "0 1 2 "
        assert await client.request("", "3", streaming=True, timeout=20) == "0 1 2 "


SHORT = 100
LONGEST = 5.0
"""Seconds for each short answer on a busy machine; behind the long one it would take minutes."""


async def test_short_answers_overtake_a_long_one(bus: Bus) -> None:
    flow, service = uuid4().hex, TEXT_COMPLETION.name
    route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, service), TOPICS.response(flow, service))
    async with Processor(bus, TOPICS, CountingLlm(), (route,)), Requestor(bus, TOPICS) as requestor:
        client = LlmClient(requestor, route)
        read, begun = 0, asyncio.Event()

        async def long() -> None:
            nonlocal read
            request = TextCompletionRequest(prompt="100000000", streaming=True)
            async with client.stream(request) as records:
                async for record in records:
                    read += len(record.response or "")
                    begun.set()

        async def short() -> float:
            asked = time.monotonic()
            assert await client.request("", "5", streaming=True) == "0 1 2 3 4 "
            return time.monotonic() - asked

        flood = asyncio.create_task(long())
        try:
            await asyncio.wait_for(begun.wait(), 20)
            took = [await short() for _ in range(5)]
            before = read
            took += await asyncio.gather(*(short() for _ in range(SHORT)))
            assert not flood.done()
            assert read > before
            assert max(took) < LONGEST
        finally:
            flood.cancel()
            await asyncio.wait([flood])
